// What agents tell each other, and what they take from each other.
#include "launch/agent_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/error.h"

namespace lockstep::tests {
namespace {

TEST(AgentMessage, IsReadAsItWasWritten) {
  const AgentMessage start = parse_agent_message(to_text({.kind = AgentMessageKind::start,
                                                          .order = {.epoch = 3,
                                                                    .layout = {.ranks = 4, .text = "dp=2,tp=2"},
                                                                    .resumes = true,
                                                                    .joins = true,
                                                                    .master = "10.0.0.1",
                                                                    .places = {{2, 0}, {3, 1}}}}));
  EXPECT_EQ(start.order.places, (std::vector<EpochOrder::Place>{{2, 0}, {3, 1}}));
  EXPECT_EQ(start.order.layout, (LaunchLayout{.ranks = 4, .text = "dp=2,tp=2"}));
  EXPECT_TRUE(start.order.resumes);
  EXPECT_TRUE(start.order.joins);
  EXPECT_EQ(parse_agent_message(to_text({.kind = AgentMessageKind::kill, .ranks = {2, 5}})).ranks,
            (std::set<int>{2, 5}));
  EXPECT_TRUE(parse_agent_message(to_text({.kind = AgentMessageKind::kill})).ranks.empty());
  const AgentMessage ended = parse_agent_message(
      to_text({.kind = AgentMessageKind::ended, .epoch = 3, .ends = {{.rank = 2, .code = 137, .killed = true}}}));
  EXPECT_EQ(ended.ends, (std::vector<RankEnd>{{.rank = 2, .code = 137, .killed = true}}));
  const AgentMessage beat = parse_agent_message(
      to_text({.kind = AgentMessageKind::beat,
               .beat = 9,
               .plan = {.number = 3, .layout = {.ranks = 2}, .slots = {{0, 0}, {1, 0}}, .resumes = true},
               .agents = {0, 1}}));
  EXPECT_EQ(beat.plan.slots, (std::vector<RankSlot>{{0, 0}, {1, 0}}));
  EXPECT_EQ(beat.agents, (std::set<int>{0, 1}));
  const AgentMessage join =
      parse_agent_message(to_text({.kind = AgentMessageKind::join,
                                   .agent = 2,
                                   .facts = {.name = "b", .address = "::1", .slots = 3, .process = 7},
                                   .version = "0.1"}));
  EXPECT_EQ(join.facts.slots, 3);
  EXPECT_EQ(join.agent, 2);
}

// A layout is an argument of a program that the agent starts.
TEST(AgentMessage, ALayoutThatIsNoneIsRefused) {
  for (const char* text :
       {"dp=2 --overwrite", "$(reboot)", "dp=2;x", "dp=2\\n", "../x", "--overwrite", "-h", "=2", "2"})
    EXPECT_FALSE(is_layout_text(text));
  for (const char* text : {"dp=2,pp=2,stages=3+5,cp_kind=2x2,schedule=zb-h1", "dp=2,zero=3,wrap=64MiB",
                           "pp=2,micro=4,schedule_file=schedules/Mine.txt"})
    EXPECT_TRUE(is_layout_text(text)) << text;
}

// An address is a variable of a program that the agent starts.
TEST(AgentMessage, AnAddressThatIsNoneIsRefused) {
  for (const char* text : {"", "-oProxyCommand=x", "a b", "$(reboot)", "a;b", "a/b", "a=b", "a\nb"})
    EXPECT_FALSE(is_host_text(text)) << text;
  for (const char* text : {"node1", "10.0.0.1", "fe80::1%eth0", "a-b_c.example"})
    EXPECT_TRUE(is_host_text(text)) << text;
}

TEST(AgentMessage, AnOrderIsForSlotsThatTheHostHas) {
  const auto with = [](std::vector<EpochOrder::Place> places) {
    return why_not({.epoch = 1, .layout = {.ranks = 4}, .places = std::move(places)}, 2);
  };
  EXPECT_EQ(with({{2, 0}, {3, 1}}), "");
  EXPECT_EQ(with({}), "an epoch without ranks");
  EXPECT_EQ(with({{4, 0}}), "rank 4 of 4");
  EXPECT_EQ(with({{3, 2}}), "slot 2 of a host of 2");
  EXPECT_EQ(with({{2, 0}, {2, 1}}), "rank 2 or slot 1 twice");
  EXPECT_EQ(with({{2, 0}, {3, 0}}), "rank 3 or slot 0 twice");
}

TEST(AgentMessage, WhatMakesNoSenseIsRefusedInOneLine) {
  for (
      const char* text :
      {"",
       "[]",
       "{}",
       "null",
       R"({"kind":7})",
       R"({"kind":"reboot"})",
       R"({"kind":"start"})",
       R"({"kind":"start","order":{"epoch":0,"ranks":1,"layout":"","resumes":true,"joins":false,"master":"a","places":[]}})",
       R"({"kind":"start","order":{"epoch":1,"ranks":1,"layout":"a b","resumes":true,"joins":false,"master":"a","places":[]}})",
       R"({"kind":"start","order":{"epoch":1,"ranks":1,"layout":"","resumes":1,"joins":false,"master":"a","places":[]}})",
       R"({"kind":"start","order":{"epoch":1,"ranks":1,"layout":"","resumes":true,"joins":false,"master":"a","places":[[1,0]]}})",
       R"({"kind":"start","order":{"epoch":1,"ranks":1,"layout":"","resumes":true,"joins":false,"master":"a b","places":[[0,0]]}})",
       R"({"kind":"start","order":{"epoch":1,"ranks":1,"layout":"--x","resumes":true,"joins":false,"master":"a","places":[[0,0]]}})",
       R"({"kind":"start","order":{"epoch":1,"ranks":1,"layout":"","resumes":true,"joins":2,"master":"a","places":[]}})",
       R"({"kind":"kill"})",
       R"({"kind":"kill","ranks":[-1]})",
       R"({"kind":"kill","ranks":["0"]})",
       R"({"kind":"beat","beat":1,"plan":{"epoch":2,"ranks":2,"layout":"","slots":[],"agents":[0]}})",
       R"({"kind":"beat","beat":1,"plan":{"epoch":2,"ranks":3,"layout":"","slots":[[0,0],[0,1]],"agents":[0]}})",
       R"({"kind":"ended","epoch":1,"ends":[3]})",
       R"({"kind":"ended","epoch":-1,"ends":[]})",
       R"({"kind":"ended","epoch":1,"ends":[{"rank":0,"code":999,"killed":false,"found":""}]})",
       R"({"kind":"join","agent":-1,"name":"","address":"","slots":1,"process":1,"version":""})",
       R"({"kind":"join","agent":0,"name":"","address":"","slots":1e9,"process":1,"version":""})",
       R"({"kind":"beat","beat":"x"})",
       R"({"kind":"beat","beat":1,"plan":[]})",
       R"({"kind":"over","text":7,"code":1})"}) {
    try {
      parse_agent_message(text);
      ADD_FAILURE() << text;
    } catch (const CommError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
