// compare as a user meets it: tables that fit, JSON that adds up, one line for every mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/compare_view.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kComparedRun = R"(
[model]
family = "llama"
vocabulary = 16
layers = 2
width = 32
heads = 2
ffn_width = 64
max_positions = 32
[data]
seq = 16
[data.synthetic]
vocabulary = 16
order = 1
[train]
global_batch = 12
[layout]
micro = 3
)";

class Compare : public ::testing::Test {
 protected:
  Compare() { std::ofstream(folder_ / "tiny.toml") << kComparedRun; }
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"compare", folder_ / "tiny.toml"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome compare(const std::vector<std::string>& more) const { return run_program(arguments(more)); }
  TemporaryFolder folder_;
};

std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST_F(Compare, ShowsWhatEveryLayoutCosts) {
  const Outcome o = compare({"--ranks", "4", "--steps", "2", "--scale", "1,2,3,4"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  for (const char* part : {"dp_kind=central",
                           "overlap=off",
                           "ddp",
                           "zero=1",
                           "zero=1,grad_sync=micro",
                           "zero=2,grad_sync=step",
                           "zero=2",
                           "zero=3,grad_sync=step",
                           "zero=3",
                           "zero=3,reshard=never",
                           "zero=3,shard=2",
                           "\n  tp=2 ",
                           "\n  tp=2,sp=off ",
                           "\n  pp=4,schedule=zb-h1 ",
                           "by axis",
                           "numbers",
                           "one rank",
                           "params",
                           "gathered",
                           "all_gather",
                           "red.sc.",
                           "step ms",
                           "off",
                           "exp. ms",
                           "bubble",
                           "plan of times: made before any layout ran.",
                           "two steps of one rank alone measured",
                           "tokens/s",
                           "eff.",
                           "12 samples of 16 tokens",
                           "3 micro-batches",
                           "left out: 3 ranks: global_batch (12) is not a multiple of dp (3) times micro (3)"})
    EXPECT_THAT(o.out, HasSubstr(part));
  EXPECT_THAT(o.out, Not(HasSubstr("NOT AS PLANNED")));
  std::istringstream lines(o.out);
  int cut = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  tp=2 ")) ++cut;
    EXPECT_LE(columns(line), 120u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
  EXPECT_EQ(cut, 5) << "it is in all tables";
}

TEST_F(Compare, GivesJsonThatAddsUp) {
  const Outcome o = compare({"--ranks", "4", "--steps", "1", "--scale", "2", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json all = json::parse(o.out);
  EXPECT_EQ(all["ok"], true);
  EXPECT_EQ(all["complete"], true);
  EXPECT_EQ(all["tokens_per_step"], 192);
  ASSERT_EQ(all["layouts"].size(), 16u + 19u + 1u);
  double one_rank = 0;
  for (const json& one : all["layouts"])
    if (one["ranks"] == 1) one_rank = one["tokens_per_second"];
  for (const json& one : all["layouts"]) {
    const std::string name = one["layout"];
    EXPECT_EQ(one["ok"], true) << name;
    const json& memory = one["memory"];
    std::int64_t measured = 0;
    for (const auto& [tag, bytes] : memory["tags"].items()) {
      EXPECT_EQ(bytes["predicted"], bytes["measured"]) << name << " " << tag;
      measured += bytes["measured"].get<std::int64_t>();
    }
    EXPECT_EQ(memory["peak"]["measured"], measured) << name;
    EXPECT_EQ(memory["peak"]["predicted"], measured) << name;
    const std::vector<std::int64_t> held = memory["peak_of_ranks"];
    ASSERT_EQ(held.size(), one["ranks"].get<std::size_t>());
    EXPECT_EQ(held[memory["rank"].get<std::size_t>()], measured);
    EXPECT_EQ(std::ranges::max(held), measured);
    double sum = 0;
    for (const std::int64_t bytes : held) sum += static_cast<double>(bytes);
    EXPECT_DOUBLE_EQ(memory["mean_peak"].get<double>(), sum / static_cast<double>(held.size()));

    const json& messages = one["messages"];
    EXPECT_EQ(messages["predicted"], messages["measured"]) << name;
    std::int64_t elements = 0, bytes = 0;
    for (const json& row : messages["measured"]["tensors"]) {
      elements += row["elements"].get<std::int64_t>();
      bytes += row["bytes"].get<std::int64_t>();
    }
    EXPECT_EQ(messages["measured"]["elements"], elements);
    EXPECT_EQ(messages["measured"]["bytes"], bytes);
    EXPECT_EQ(elements == 0, one["ranks"] == 1) << name;
    if (name == "dp=4,micro=3") {
      EXPECT_EQ(elements, one["stored_parameters"].get<std::int64_t>() * 3 / 2);
    }

    const double seconds = one["step_seconds"], rate = one["tokens_per_second"];
    EXPECT_DOUBLE_EQ(rate, 192 / seconds);
    EXPECT_LE(one["exposed_seconds"].get<double>(), seconds);
    const bool piped = name.find("pp=") != std::string::npos;
    const json& predicted = one["predicted"];
    for (const json& time : {one, predicted}) {
      EXPECT_EQ(time["bubble"].is_null(), !piped) << name;
      EXPECT_TRUE(!piped || (time["bubble"] > 0 && time["bubble"] < 1)) << name;
      EXPECT_GT(time["step_seconds"], 0) << name;
      EXPECT_LE(time["exposed_seconds"].get<double>(), time["step_seconds"].get<double>() * (1 + 1e-9)) << name;
    }
    EXPECT_DOUBLE_EQ(predicted["tokens_per_second"].get<double>(), 192 / predicted["step_seconds"].get<double>());
    EXPECT_NEAR(predicted["step_error"].get<double>(), predicted["step_seconds"].get<double>() / seconds - 1, 1e-9);
    EXPECT_GT(predicted["calibration"]["product_flops_per_second"], 1e6);
    EXPECT_GT(predicted["calibration"]["copy_bytes_per_second"], 1e6);
    EXPECT_EQ(predicted["calibration"]["one_rank_measured"], true);
    std::int64_t calls = 0, along = 0, all_calls = 0;
    for (const auto& [axis, sent] : messages["by_axis"].items()) {
      EXPECT_EQ(sent["predicted"], sent["measured"]) << name << " " << axis;
      calls += sent["measured"]["calls"].get<std::int64_t>();
      along += sent["measured"]["bytes"].get<std::int64_t>();
    }
    for (const json& row : messages["measured"]["tensors"]) all_calls += row["calls"].get<std::int64_t>();
    EXPECT_EQ(along, bytes) << name;
    EXPECT_EQ(calls, all_calls) << name;
    const int cores = std::min(one["ranks"].get<int>(), all["cores"].get<int>());
    EXPECT_NEAR(one["efficiency"].get<double>(), rate / one_rank / cores, 1e-9);
  }
}

// The run file has micro = 3; a layout that is named is whole.
TEST_F(Compare, TakesLayoutsByNameAsTheyStand) {
  const Outcome o = compare({"--ranks", "2", "--steps", "1", "--layout", "zero=3,overlap=off", "--layout",
                             "dp=2,micro=2,dp_kind=central", "--markdown"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("| zero=3,overlap=off |"));
  EXPECT_THAT(o.out, HasSubstr("| micro=2,dp_kind=central |"));
  EXPECT_THAT(o.out, HasSubstr("| --- | ---: |"));
}

TEST_F(Compare, SharesItsRanksOutToThoseThatCutLayers) {
  const Outcome o = compare(
      {"--ranks", "4", "--steps", "1", "--layout", "tp=2", "--layout", "tp=2,sp=off,zero=1", "--layout", "zero=1"});
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* name : {"\n  dp=2,tp=2 ", "\n  dp=2,tp=2,sp=off,zero=1 ", "\n  zero=1 "})
    EXPECT_THAT(o.out, HasSubstr(name));
  EXPECT_THAT(o.out, HasSubstr("4 ranks of "));

  const Outcome scaled =
      compare({"--ranks", "4", "--scale", "2,3", "--steps", "1", "--layout", "tp=2,micro=1", "--json"});
  ASSERT_EQ(scaled.code, 0) << scaled.err;
  const json all = json::parse(scaled.out);
  ASSERT_EQ(all["layouts"].size(), 3u);
  double one_rank = 0;
  for (const json& one : all["layouts"])
    if (one["layout"] == "dp=1") one_rank = one["tokens_per_second"];
  EXPECT_GT(one_rank, 0);
  for (const json& one : all["layouts"]) {
    const int ranks = one["layout"] == "dp=2,tp=2" ? 4 : one["layout"] == "tp=2" ? 2 : 1;
    EXPECT_EQ(one["ranks"], ranks);
    EXPECT_EQ(one["memory"]["peak_of_ranks"].size(), static_cast<std::size_t>(ranks));
    EXPECT_NEAR(one["efficiency"].get<double>(),
                one["tokens_per_second"].get<double>() / one_rank / std::min(ranks, all["cores"].get<int>()), 1e-9);
    std::set<std::string> axes;
    for (const json& row : one["messages"]["measured"]["tensors"]) axes.insert(row["axis"]);
    EXPECT_EQ(axes, ranks == 4   ? (std::set<std::string>{"dp", "tp"})
                    : ranks == 2 ? std::set<std::string>{"tp"}
                                 : std::set<std::string>{});
  }
  EXPECT_EQ(all["left_out"][0]["ranks"], 3);
  EXPECT_EQ(all["left_out"][0]["why"], "tp (2) does not divide 3 ranks");
}

class CompareList : public Compare {
 protected:
  std::string list(const std::string& text) {
    std::ofstream(folder_ / "list.txt", std::ios::binary) << text;
    return folder_ / "list.txt";
  }
};

TEST_F(CompareList, TakesLayoutsFromAFileEachWithItsRanks) {
  const std::string file = list(
      "# what is tried\n\n  dp=2,pp=2,zero=1,micro=2   # deep\r\nzero=1\npp=2\n\tdp=3,micro=2\ndp=3,micro=2\ntp=2");
  const auto layouts = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"--layouts", file, "--steps", "1", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = compare(all);
    EXPECT_EQ(o.code, 0) << o.err;
    const json tried = json::parse(o.out)["layouts"];
    std::vector<std::string> names;
    for (const json& one : tried) names.push_back(one["layout"]);
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(layouts({}), (Names{"dp=2,pp=2,micro=2,zero=1", "zero=1", "pp=2", "dp=3,micro=2", "tp=2"}));
  list("dp=2,pp=2,zero=1,micro=2\nzero=1\npp=2\ntp=2");
  EXPECT_EQ(layouts({"--ranks", "4", "--layout", "zero=3"}),
            (Names{"dp=4,zero=3", "dp=2,pp=2,micro=2,zero=1", "dp=4,zero=1", "dp=2,pp=2", "dp=2,tp=2"}));
  EXPECT_EQ(layouts({"--ranks", "4", "--set", "layout.micro=3"}),
            (Names{"dp=2,pp=2,micro=3,zero=1", "dp=4,micro=3,zero=1", "dp=2,pp=2,micro=3", "dp=2,tp=2,micro=3"}));
}

// Names that would make a table too wide are numbers in it.
TEST_F(CompareList, KeepsTablesNarrowWhateverLayoutsAreCalled) {
  const Outcome o = compare({"--steps", "1", "--layouts",
                             list("dp=2,pp=2,tp=2,sp=off,micro=2,zero=1,schedule=zb-h1,stages=even\ndp=2,zero=3\n")});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\n  (1)    "));
  EXPECT_THAT(o.out, HasSubstr("\n(1): dp=2,pp=2,"));
  EXPECT_THAT(o.out, HasSubstr("\n  dp=2,zero=3 "));
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), 120u) << line;
}

TEST_F(CompareList, NamesTheLineOfAMistake) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"dp=2\n\nzero=4\n", "list.txt:3: zero=4: "},
      {"# none\n\n", "list.txt: it names no layout; write one per line, as in dp=2,pp=2,zero=3"},
      {"", "it names no layout"},
      {"dp=2 pp=2", "list.txt:1: "},
      {"what\n", "list.txt:1: 'what': 'what' names no key and value; write it as in"},
      {"dp=2\ndp=5\n", "list.txt:2: dp=5: global_batch (12) is not a multiple of dp (5) times micro (1); use"},
      {"tp=4\n", "list.txt:1: tp=4: 2 heads with 2 key/value heads cannot be shared out"},
      {"dp=1000,micro=1\n", "list.txt:1: "},
      {std::string("dp=2\n\0\x01\xff\n", 9), "list.txt:2: "},
      {std::string(2 << 20, '#'), "list.txt is larger than 1048576 bytes; check that it is the file you meant"},
  };
  for (const auto& [text, words] : mistakes) {
    const Outcome o = compare({"--layouts", list(text)});
    EXPECT_EQ(o.code, 2) << words;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, HasSubstr(words));
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  }
  std::string many;
  for (int i = 0; i < 1001; ++i) many += "dp=2\n";
  EXPECT_THAT(compare({"--layouts", list(many)}).err, HasSubstr("list.txt:1001: more than 1000 layouts; split"));
  const Outcome ranks = compare({"--layouts", list("zero=1\ntp=2\n"), "--ranks", "3"});
  EXPECT_EQ(ranks.code, 2);
  EXPECT_THAT(ranks.err,
              HasSubstr("list.txt:2: --ranks 3: tp (2) does not divide 3 ranks; use --ranks 2 or --ranks 4"));
  for (const std::string& file : {folder_ / "missing.txt", folder_ / "", std::string()}) {
    const Outcome o = compare({"--layouts", file});
    EXPECT_EQ(o.code, 2) << file;
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  }
  const Outcome large = compare({"--layout", "dp=300,micro=1", "--set", "train.global_batch=300"});
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.err,
              HasSubstr("--layout dp=300: 300 ranks, and one process has at most 256; use fewer ranks here"));
}

// What the run file says for its own layout alone does not stand in the way of others.
TEST_F(Compare, LeavesOutWhatIsOfTheRunsOwnLayout) {
  const Outcome o = compare({"--set", "memory.gathered=1", "--steps", "1", "--layout", "zero=1", "--layout", "zero=3",
                             "--set", "layout.dp=2", "--set", "layout.micro=3", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json all = json::parse(o.out)["layouts"];
  EXPECT_EQ(all[0]["layout"], "dp=2,micro=3,zero=1");
  EXPECT_EQ(all[1]["layout"], "dp=2,micro=3,zero=3");
}

TEST_F(Compare, CountsTheTextOnce) {
  const Outcome o = run_program({"compare", "--ranks", "2", "--steps", "1", "--json", "--layout", "zero=1", "--set",
                                 "model.layers=1", "--set", "data.seq=16", "--set", "train.global_batch=4"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json one = json::parse(o.out)["layouts"][0];
  EXPECT_EQ(one["memory"]["rank"], 0);
  EXPECT_GT(one["memory"]["peak_of_ranks"][0], one["memory"]["peak_of_ranks"][1]);
}

TEST_F(Compare, MistakesAreOneLineWithARemedy) {
  const std::pair<std::vector<std::string>, std::string> mistakes[] = {
      {{"--ranks", "5"}, "--ranks 5: dp (5) times micro (3) is more than global_batch (12); use global_batch = 15"},
      {{"--ranks", "3"}, "--ranks 3: global_batch (12) is not a multiple of dp (3) times micro (3); use"},
      {{"--ranks", "0"}, "--ranks"},
      {{"--ranks", "1000"}, "--ranks"},
      {{"--steps", "0"}, "--steps"},
      {{"--scale", "1,two"}, "'two' is no number of ranks from 1 to 256; give numbers as in --scale 1,2,4,8"},
      {{"--scale", "2,"}, "'' is no number of ranks"},
      {{"--layout", "zero=4"}, "--layout zero=4"},
      {{"--layout", "zero=3,shard=3"}, "dp (1) is not a multiple of shard (3)"},
      {{"--ranks", "4", "--layout", "tp=3"},
       "--ranks 4: tp (3) does not divide 4 ranks; use --ranks 3 or --ranks 6, or another tp"},
      {{"--ranks", "2", "--layout", "dp=4"}, "--ranks 2: dp=4 makes 4 ranks; leave dp out, or use --ranks 4"},
      {{"--ranks", "2", "--layout", "tp=8"}, "tp (8) does not divide 2 ranks; use --ranks 8, or a smaller tp"},
      {{"--layout", "tp=4"},
       "--layout tp=4: 2 heads with 2 key/value heads cannot be shared out to tp (4) ranks; use tp = 1, 2"},
      {{"--ranks", "2", "--layout", "cp=2", "--set", "data.seq=15"}, "seq (15) is not a multiple of 4, which cp (2)"},
      {{"--set", "run.device=cuda", "--link", "1GB/s,50us"}, "--link on a GPU: a simulated link is between ranks on"},
      {{"--link", "1GB"}, "--link '1GB'; give a bandwidth (GB/s, MB/s, Gbit/s) and a latency (s, ms, us, ns), as in"},
      {{"--json", "--markdown"}, "excludes"},
      {{"--set", "layout.zero=5"}, "zero"},
  };
  for (const auto& [more, words] : mistakes) {
    const Outcome o = compare(more);
    EXPECT_EQ(o.code, 2) << words;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, HasSubstr(words));
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  }
  const Outcome large = run_program({"compare", "--ranks", "2", "--set", "model.preset=llama3.1-405b"});
  EXPECT_EQ(large.code, 3) << large.err;
  EXPECT_THAT(large.err, HasSubstr("none of the layouts fits"));
  EXPECT_EQ(std::ranges::count(large.err, '\n'), 1) << large.err;
}

TEST_F(Compare, EndsWhenAsked) {
  Program running(arguments({"--ranks", "4", "--steps", "1000", "--set", "train.global_batch=1200"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  running.signal(SIGINT);
  const Outcome o = running.wait();
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("stopped as asked, after 0 of 16 layouts"));
}

// Nothing that a user can do makes them differ, so here a figure is changed by hand.
TEST(CompareView, IsLoudWhereSomethingIsNotAsPlanned) {
  ComparedLayout one{.layout = {.dp = 2, .zero = 2}, .ranks = std::vector<ComparedRank>(2)};
  one.fullest_plan.peaks[0] = one.ranks[0].peaks[0] = one.fullest_plan.peak = one.ranks[0].peak = 4096;
  one.sender_plan.stored = one.fullest_plan.stored = 1000;
  for (ComparedRank& rank : one.ranks) rank.step_seconds = 1;
  Comparison comparison{.layouts = {one}};
  const CompareAsked asked{.ranks = 2};
  EXPECT_TRUE(comparison.ok());
  EXPECT_THAT(compare_text({}, comparison, asked, CompareStyle::plain), Not(HasSubstr("NOT AS PLANNED")));

  comparison.layouts[0].ranks[0].peaks[0] = 5000;
  EXPECT_FALSE(comparison.ok());
  EXPECT_THAT(compare_text({}, comparison, asked, CompareStyle::plain),
              HasSubstr("NOT AS PLANNED: dp=2,zero=2, rank 0: bytes of parameter: 4,096 planned, 5,000 measured\n"));
  EXPECT_EQ(compare_json({}, comparison, asked)["ok"], false);

  comparison = {.layouts = {one}};
  comparison.layouts[0].ranks[0].messages.tensors = {{CommOp::all_reduce, DType::f32, {1, 10, 10, 40}}};
  EXPECT_FALSE(comparison.ok());
  EXPECT_THAT(compare_text({}, comparison, asked, CompareStyle::colour),
              HasSubstr("NOT AS PLANNED: dp=2,zero=2, rank 0: elements sent by all_reduce: 0 planned, 10 measured\n"));

  comparison = {.layouts = {one}};
  comparison.layouts[0].ranks[0].rows[{Tag::parameter, "head"}] = {1, 1};
  EXPECT_FALSE(comparison.ok());
  EXPECT_THAT(compare_text({}, comparison, asked, CompareStyle::markdown),
              HasSubstr("NOT AS PLANNED: dp=2,zero=2: bytes by unit"));
}

}  // namespace
}  // namespace lockstep::tests
