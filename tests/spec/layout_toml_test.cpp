// Layouts as text: every key acts, defaults follow the stage, and what is written reads back.
#include "spec/layout_toml.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "spec/model_spec.h"
#include "spec/run_toml.h"

namespace lockstep::tests {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_layout(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(LayoutText, GradientsAreSummedAsTheStageIsUsedFor) {
  EXPECT_EQ(parse_layout("dp=2").grad_sync, GradSync::step);
  EXPECT_EQ(parse_layout("dp=2,zero=1").grad_sync, GradSync::step);
  EXPECT_EQ(parse_layout("dp=2,zero=2").grad_sync, GradSync::micro);
  EXPECT_EQ(parse_layout("grad_sync=step,zero=3").grad_sync, GradSync::step);
  EXPECT_EQ((LayoutSpec{.dp = 2, .zero = 3}), parse_layout("dp=2,zero=3"));
  EXPECT_EQ((LayoutSpec{.dp = 2, .zero = 1}), parse_layout("dp=2,zero=1"));
}

TEST(LayoutText, ReadsBackWhatItSays) {
  for (const char* text :
       {"dp=1", "dp=4,micro=3", "dp=2,zero=1", "dp=8,micro=2,zero=3,grad_sync=step,reshard=never,shard=4",
        "dp=3,zero=2,overlap=off,uneven=on", "dp=2,grad_sync=micro", "dp=2,bucket=0,reduce=ring",
        "dp=2,dp_kind=central", "tp=2", "dp=2,tp=4,sp=off,tp_chunks=2,zero=3"})
    EXPECT_EQ(to_text(parse_layout(text)), text);
}

TEST(LayoutText, AKeyThatWouldDoNothingIsRefused) {
  for (const auto& [text, words] :
       {std::pair{"dp=2,shard=2", "--layout shard=2: 'shard' does nothing with zero = 0"},
        {"dp=2,zero=2,reshard=never", "'reshard' does nothing with zero = 2"},
        {"dp=2,zero=1,bucket=4", "'bucket' does nothing with zero = 1 and grad_sync = \"step\""},
        {"dp=2,grad_sync=micro,bucket=4", "'bucket' does nothing with zero = 0 and grad_sync = \"micro\""},
        {"dp=2,dp_kind=central,zero=1", "'zero' does nothing with dp_kind = \"central\""},
        {"dp=2,dp_kind=central,grad_sync=micro", "'grad_sync' does nothing"},
        {"dp=2,zero=4", "zero"},
        {"dp=2,sp=on", "'sp' does nothing with tp = 1"},
        {"tp_chunks=2", "'tp_chunks' does nothing with tp = 1"},
        {"tp=2,dp_kind=central", "'tp' does nothing with dp_kind = \"central\""},
        {"cp_kind=ring", "'cp_kind' does nothing with cp = 1"},
        {"cp_order=plain", "'cp_order' does nothing with cp = 1"},
        {"cp=2,cp_kind=ulysses,cp_order=plain", "'cp_order' does nothing with cp_kind = \"ulysses\""},
        {"cp=2,cp_kind=1x2,cp_order=plain", "'cp_order' does nothing with cp_kind = \"1x2\""},
        {"cp=2,cp_order=zickzack", "cp_order"},
        {"cp=0", "'cp'"},
        {"cp=2,dp_kind=central", "'cp' does nothing with dp_kind = \"central\""},
        {"stages=even", "'stages' does nothing where the model is one part"},
        {"pp=2,dp_kind=central", "'pp' does nothing with dp_kind = \"central\""},
        {"pp=2,schedule=afab,schedule_file=x", "both name a schedule"}})
    EXPECT_NE(refusal(text).find(words), std::string::npos) << text << ": " << refusal(text);
}

std::string fault(std::int64_t batch, const LayoutSpec& layout) {
  std::string words;
  check_layout(batch, layout, [&](std::string_view key, const std::string& problem, const std::string& remedy) {
    if (words.empty()) words = std::string(key) + ": " + problem + "; " + remedy;
  });
  return words;
}

std::string tensor_fault(std::int64_t heads, std::int64_t kv_heads, std::int64_t seq, const LayoutSpec& layout) {
  ModelSpec model;
  model.heads = heads;
  model.kv_heads = kv_heads;
  std::string words;
  check_tensor_layout(model, seq, layout,
                      [&](std::string_view key, const std::string& problem, const std::string& remedy) {
                        if (words.empty()) words = std::string(key) + ": " + problem + "; " + remedy;
                      });
  return words;
}

TEST(LayoutText, HeadsAndTokensThatDoNotDivideAreRefusedWithWhatDoes) {
  EXPECT_EQ(tensor_fault(6, 3, 12, {.tp = 2}),
            "tp: 6 heads with 3 key/value heads cannot be shared out to tp (2) ranks; use tp = 1, 3, 6");
  EXPECT_EQ(tensor_fault(8, 2, 24, {.tp = 16}),
            "tp: 8 heads with 2 key/value heads cannot be shared out to tp (16) ranks; use tp = 1, 2, 4, 8");
  EXPECT_EQ(tensor_fault(8, 8, 30, {.tp = 4}),
            "sp: seq (30) is not a multiple of tp (4); use seq = 28 or 32, another tp, or sp = \"off\"");
  EXPECT_EQ(tensor_fault(8, 8, 30, {.tp = 4, .sp = Switch::off}), "");
  EXPECT_EQ(tensor_fault(8, 2, 24, {.tp = 8}), "");
}

std::string context_fault(std::int64_t heads, std::int64_t kv_heads, std::int64_t seq, const std::string& text) {
  ModelSpec model;
  model.heads = heads;
  model.kv_heads = kv_heads;
  try {
    check_model_layout(model, seq, parse_layout(text),
                       [&](std::string_view key, const std::string& problem, const std::string& remedy) {
                         throw std::runtime_error(std::string(key) + ": " + problem + "; " + remedy);
                       });
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(LayoutText, SamplesThatCannotBeCutAreRefusedWithWhatCan) {
  EXPECT_EQ(context_fault(8, 8, 30, "cp=2"),
            "cp: seq (30) is not a multiple of 4, which cp (2) asks for; use seq = 28 or 32, cp_order = \"plain\", or "
            "another cp");
  EXPECT_EQ(context_fault(8, 8, 3, "cp=4,cp_order=plain"),
            "cp: seq (3) is not a multiple of 4, which cp (4) asks for; use seq = 4, or another cp");
  EXPECT_EQ(context_fault(8, 8, 20, "cp=6,cp_kind=2x3"),
            "cp_kind: 8 heads with 8 key/value heads cannot be exchanged between 3 ranks; use cp_kind = \"6x1\", "
            "\"3x2\"");
  EXPECT_EQ(context_fault(8, 2, 32, "cp=4,cp_kind=ulysses,tp=4"),
            "cp_kind: 2 heads with 1 key/value heads of a rank cannot be exchanged between 4 ranks; use cp_kind = "
            "\"4x1\", \"2x2\"");
  EXPECT_EQ(context_fault(8, 8, 32, "cp=4,cp_kind=2x3"),
            "cp_kind: cp_kind = \"2x3\" is 6 ranks, and cp is 4; use cp = 6, or factors of 4");
  for (const std::string kind : {"rings", "x", "2x", "x2", "-2x-2", "2x2x1", "0x4", "2 x2", "99999999999999999999x1"})
    EXPECT_TRUE(context_fault(8, 8, 32, "cp=4,cp_kind='" + kind + "'").starts_with("cp_kind: cp_kind = ")) << kind;
  EXPECT_EQ(context_fault(8, 8, 24, "cp=2,tp=8"),
            "sp: seq (24) is not a multiple of cp (2) times tp (8); use seq = 16 or 32, another tp, or sp = \"off\"");
  for (const char* fits : {"cp=2", "cp=4,cp_kind=2x2", "cp=8,cp_kind=ulysses", "cp=4,cp_order=plain,tp=4", "cp=2,pp=2"})
    EXPECT_EQ(context_fault(8, 2, 32, fits), "") << fits;
}

TEST(LayoutText, OfContextComesBackAsItWas) {
  for (const char* text :
       {"cp=2", "dp=2,pp=2,cp=2,tp=2", "cp=4,cp_kind=2x2,cp_order=plain", "cp=3,cp_kind=ulysses,zero=3"})
    EXPECT_EQ(to_text(parse_layout(text)), text);
}

// Every token is somebody's, in one place, and blocks are what they are said to be.
TEST(ContextSplitOfSamples, GivesEveryTokenToOneRank) {
  for (const char* text : {"cp=2", "cp=3", "cp=8", "cp=4,cp_order=plain", "cp=6,cp_kind=3x2",
                           "cp=6,cp_kind=2x3,cp_order=plain", "cp=4,cp_kind=ulysses", "cp=9,cp_kind=3x3"}) {
    const LayoutSpec layout = parse_layout(text);
    const std::int64_t T = 3 * layout.context_split(0).unit();
    std::vector<int> seen(static_cast<std::size_t>(T));
    for (std::int64_t r = 0; r < layout.cp; ++r) {
      const ContextSplit split = layout.context_split(r);
      for (std::int64_t t = 0; t < split.tokens(T); ++t) ++seen[static_cast<std::size_t>(split.position(T, t))];
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(T), 1)) << text;
  }
  const ContextSplit zigzag = parse_layout("cp=3").context_split(1);
  std::vector<std::int64_t> places;
  for (std::int64_t t = 0; t < 4; ++t) places.push_back(zigzag.position(12, t));
  EXPECT_EQ(places, (std::vector<std::int64_t>{2, 3, 8, 9}));
}

TEST(LayoutText, GroupsThatDoNotDivideTheRanksAreRefusedWithThoseThatDo) {
  EXPECT_EQ(fault(12, {.dp = 12, .zero = 3, .shard = 5}),
            "shard: dp (12) is not a multiple of shard (5); use shard = 4 or 6, or 0 for all ranks");
  EXPECT_EQ(fault(4, {.dp = 2, .zero = 1, .shard = 4}),
            "shard: dp (2) is not a multiple of shard (4); use shard = 2, or 0 for all ranks");
  EXPECT_EQ(fault(12, {.dp = 12, .zero = 3, .shard = 4}), "");
  EXPECT_EQ(fault(12, {.dp = 2, .cp = 3, .zero = 3, .shard = 4}),
            "shard: dp (2) times cp (3) is not a multiple of shard (4); use shard = 3 or 6, or 0 for all ranks");
  EXPECT_EQ(fault(12, {.dp = 2, .cp = 3, .zero = 3, .shard = 6}), "");
}

TEST(LayoutText, AStageOnTheCommandLineUnmakesWhatTheFileSaysOfAnother) {
  const std::string file =
      "[model]\npreset = \"llama-1m\"\n[data]\nexample = true\nseq = 16\n[layout]\ndp = 2\nbucket = 4\ngrad_sync = "
      "\"step\"\n";
  const std::string sets[] = {"layout.zero=3"};
  const RunSpec spec = parse_run_toml(file, "run.toml", ".", sets);
  EXPECT_EQ(spec.layout, (LayoutSpec{.dp = 2, .zero = 3}));
  EXPECT_EQ(parse_run_toml(to_toml(spec), "again.toml", ".").layout, spec.layout);
}

TEST(LayoutText, RoomForGatheredWeightsIsOfStageThreeAlone) {
  const std::string file =
      "[model]\npreset = \"llama-1m\"\n[data]\nexample = true\nseq = 16\n[memory]\ngathered = 8\n[layout]\ndp = 2\n";
  EXPECT_EQ(parse_run_toml(file + "zero = 3\n", "run.toml", ".").memory.gathered, 8);
  for (const char* more : {"zero = 2\n", "zero = 3\nreshard = \"never\"\n"}) {
    try {
      parse_run_toml(file + more, "run.toml", ".");
      ADD_FAILURE() << more;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("run.toml:7: gathered = 8 does nothing: "), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
