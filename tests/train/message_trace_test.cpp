// Traces with messages: no rank receives what was not sent, viewers can read them, and nobody learns anything else.
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "spec/layout/layout_toml.h"
#include "support/mesh_matrix.h"
#include "support/program.h"
#include "support/traced_run.h"
#include "train/message_arrows.h"

namespace lockstep::tests {
namespace {

RunSpec small_traced_run(const char* layout) {
  RunSpec run;
  run.model = tiny_specs()[1].spec;
  run.model.heads = run.model.kv_heads = 8;
  run.model.head_width = 4;
  run.model.width = 32;
  run.model.ffn_width = 64;
  run.model.layers = 6;
  run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  run.data.seq = 16;
  run.train = {.steps = 4, .global_batch = 8, .eval_every = 0, .save_every = 0, .save_last = false};
  run.run.threads = 1;
  run.layout = parse_layout(layout);
  return run;
}

void expect_sound_trace(const RunSpec& spec, const std::string& what) {
  const TraceFacts facts = traced_facts(spec);
  for (const std::string& fault : facts.faults) ADD_FAILURE() << what << ": " << fault;
  EXPECT_GT(facts.messages, 0) << what;
  EXPECT_GT(facts.arrows, 0) << what;
  EXPECT_GT(facts.counters, 0) << what;
  if (spec.run.clock == ClockScope::local) {
    EXPECT_EQ(facts.clock_error, 0) << what << ": threads read one clock";
    EXPECT_GE(facts.earliest_receipt, 0) << what;
  }
}

TEST(MessageTrace, HasNoMessageReceivedBeforeItWasSent) {
  for (const char* layout : {"dp=2", "tp=2", "cp=2", "pp=2,micro=4", "dp=4,zero=3", "dp=4,dp_kind=central",
                             "dp=2,pp=2,micro=2,zero=1", "cp=2,tp=2", "dp=2,pp=2,cp=2,tp=2,micro=2,zero=3"})
    expect_sound_trace(small_traced_run(layout), layout);
}

// A sample of what tests/slow/message_trace_matrix_test.cpp has fifty of; another one every day.
TEST(MessageTrace, OfOtherLayoutsEveryDayHasNoneEither) {
  const auto days = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()).time_since_epoch().count();
  for (const MeshCase& one : mesh_sample(4, static_cast<unsigned>(days)))
    expect_sound_trace(one.run(Precision::fp32), one.words());
}

// On the clocks of ranks that are compared with each other, as on those of hosts, up to the error that the file states.
TEST(MessageTrace, HoldsToTheStatedErrorWhereClocksAreCompared) {
  for (const char* layout : {"dp=2", "pp=2,micro=4", "dp=2,tp=2"}) {
    RunSpec spec = small_traced_run(layout);
    spec.run.clock = ClockScope::global;
    expect_sound_trace(spec, layout);
    EXPECT_GT(traced_facts(spec).clock_error, 0) << layout;
  }
}

TEST(MessageTrace, OfOneRankHasMemoryAndNoMessage) {
  const TraceFacts facts = traced_facts(small_traced_run("dp=1"));
  EXPECT_EQ(facts.faults, std::vector<std::string>{});
  EXPECT_EQ(facts.messages, 0);
  EXPECT_GT(facts.counters, 0);
  EXPECT_GT(facts.slices, 0);
}

// Neither clocks nor traces change what is learned, by a bit, nor what a step's messages are counted as.
TEST(MessageTrace, AndTheClockChangeNoBit) {
  for (const char* layout : {"dp=4,zero=2,micro=2", "dp=2,pp=2,micro=2", "cp=2,tp=2"}) {
    RunSpec plain = small_traced_run(layout);
    plain.run.clock = ClockScope::off;
    RunSpec watched = plain;
    watched.run.clock = ClockScope::global;
    watched.run.clock_error = 1e-9;
    const std::vector<HeardRun> before = heard_of(plain);
    const TemporaryFolder folder;
    watched.run.out = folder.path().string();
    watched.run.trace = 2;
    const std::vector<HeardRun> after = heard_of(watched);
    ASSERT_TRUE(std::filesystem::exists(folder / "trace.json"));
    for (std::size_t rank = 0; rank < before.size(); ++rank) {
      ASSERT_EQ(before[rank].losses.size(), 4u);
      EXPECT_EQ(after[rank].losses, before[rank].losses) << layout << ", rank " << rank;
      EXPECT_EQ(after[rank].norms, before[rank].norms) << layout << ", rank " << rank;
      EXPECT_EQ(after[rank].sent, before[rank].sent) << layout << ", rank " << rank;
    }
  }
}

// ---- Arrows

MessageOfRank message_of(int rank, CommOp op, double begin, int peer = -1, std::uint64_t number = 1) {
  return {rank,
          {.group = "g",
           .key = "k",
           .op = op,
           .number = number,
           .ranks = 3,
           .peer = peer,
           .begin = begin,
           .end = begin + 10}};
}

std::set<std::pair<std::size_t, std::size_t>> arrows_of(const std::vector<MessageOfRank>& messages) {
  std::set<std::pair<std::size_t, std::size_t>> arrows;
  for (const auto& [from, to] : arrows_between(messages)) arrows.emplace(from, to);
  return arrows;
}

using ArrowSet = std::set<std::pair<std::size_t, std::size_t>>;

TEST(MessageArrows, GoFromASendToItsReceive) {
  EXPECT_EQ(arrows_of({message_of(0, CommOp::send, 1, 1, 1), message_of(0, CommOp::send, 2, 1, 2),
                       message_of(1, CommOp::recv, 0, 0, 2), message_of(1, CommOp::recv, 0, 0, 1),
                       message_of(1, CommOp::send, 0, 0, 1)}),
            (ArrowSet{{0, 3}, {1, 2}}));
}

TEST(MessageArrows, OfACollectiveComeFromTheLastToCome) {
  EXPECT_EQ(arrows_of({message_of(0, CommOp::all_reduce, 1), message_of(1, CommOp::all_reduce, 5),
                       message_of(2, CommOp::all_reduce, 3)}),
            (ArrowSet{{1, 0}, {1, 2}}));
  EXPECT_EQ(arrows_of({message_of(0, CommOp::all_reduce, 1), message_of(1, CommOp::all_reduce, 5)}), ArrowSet{})
      << "where the third is not known, nobody knows who came last";
}

TEST(MessageArrows, OfARootComeFromItOrGoToIt) {
  EXPECT_EQ(arrows_of({message_of(0, CommOp::broadcast, 5, 2), message_of(1, CommOp::broadcast, 1, 2),
                       message_of(2, CommOp::broadcast, 3, 2)}),
            (ArrowSet{{2, 0}, {2, 1}}));
  EXPECT_EQ(arrows_of({message_of(0, CommOp::gather, 5, 2), message_of(1, CommOp::gather, 1, 2),
                       message_of(2, CommOp::gather, 3, 2)}),
            (ArrowSet{{0, 2}}));
}

TEST(MessageArrows, GoToNoMessageThatIsUnderWay) {
  MessageOfRank open = message_of(1, CommOp::recv, 0, 0);
  open.under_way = true;
  EXPECT_EQ(arrows_of({message_of(0, CommOp::send, 1, 1), open}), ArrowSet{});
}

}  // namespace
}  // namespace lockstep::tests
