// Layouts as text: every key acts, defaults follow the stage, and what is written reads back.
#include "spec/layout/layout_toml.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "spec/model/model_spec.h"
#include "spec/run/run_toml.h"

namespace lockstep::tests {
namespace {

std::string layout_refusal(const std::string& text) {
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
        "dp=4,zero=3,prefetch=0", "dp=4,zero=3,prefetch=3,wrap=64MiB", "dp=4,zero=3,wrap=halves",
        "dp=4,zero=3,wrap=2+3", "dp=3,zero=2,overlap=off,uneven=on", "dp=2,grad_sync=micro",
        "dp=2,embedding_gradient=rows", "dp=2,zero=1,embedding_gradient=auto", "dp=2,bucket=0,reduce=ring",
        "dp=2,dp_kind=central", "dp=3,dp_kind=server,servers=2",
        "dp=2,pp=2,tp=2,micro=2,dp_kind=server,servers=8,overlap=off", "tp=2", "dp=2,tp=4,sp=off,tp_chunks=2,zero=3"})
    EXPECT_EQ(to_text(parse_layout(text)), text);
}

TEST(LayoutText, AKeyThatWouldDoNothingIsRefused) {
  for (const auto& [text, words] :
       {std::pair{"dp=2,shard=2", "--layout shard=2: 'shard' does nothing with zero = 0"},
        {"dp=2,zero=2,reshard=never", "'reshard' does nothing with zero = 2"},
        {"dp=2,zero=2,prefetch=2", "'prefetch' does nothing with zero = 2"},
        {"dp=2,zero=1,wrap=64MiB", "'wrap' does nothing with zero = 1"},
        {"dp=2,zero=2,wrap=halves", "'wrap' does nothing with zero = 2"},
        {"dp=2,dp_kind=central,wrap=halves", "'wrap' does nothing with dp_kind = \"central\""},
        {"dp=2,zero=1,bucket=4", "'bucket' does nothing with zero = 1 and grad_sync = \"step\""},
        {"dp=2,grad_sync=micro,bucket=4", "'bucket' does nothing with zero = 0 and grad_sync = \"micro\""},
        {"dp=2,dp_kind=central,zero=1", "'zero' does nothing with dp_kind = \"central\""},
        {"dp=2,dp_kind=central,grad_sync=micro", "'grad_sync' does nothing"},
        {"dp=2,servers=2", "'servers' does nothing with dp_kind = \"ddp\""},
        {"dp=2,dp_kind=central,servers=2", "'servers' does nothing with dp_kind = \"central\""},
        {"dp=2,dp_kind=server,zero=1", "'zero' does nothing with dp_kind = \"server\""},
        {"dp=2,dp_kind=server,grad_sync=micro", "'grad_sync' does nothing with dp_kind = \"server\""},
        {"dp=2,dp_kind=server,bucket=4", "'bucket' does nothing with dp_kind = \"server\""},
        {"dp=2,dp_kind=server,tp_chunks=4", "'tp_chunks' does nothing with tp = 1"},
        {"dp=2,dp_kind=server,servers=0", "'servers'"},
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
    EXPECT_NE(layout_refusal(text).find(words), std::string::npos) << text << ": " << layout_refusal(text);
}

TEST(LayoutText, AKeyThatIsNamedTwiceIsRefused) {
  EXPECT_EQ(layout_refusal("dp=2,dp=4"), "--layout 'dp=2,dp=4': it names 'dp' twice; keep one of the two");
  EXPECT_EQ(layout_refusal("dp=2,micro=2,dp=2"),
            "--layout 'dp=2,micro=2,dp=2': it names 'dp' twice; keep one of the two");
}

TEST(LayoutText, ASettingChangesOneKeyOfIt) {
  const auto parsed = [](const char* text, std::vector<std::string> sets) { return to_text(parse_layout(text, sets)); };
  EXPECT_EQ(parsed("dp=2,zero=1", {"layout.micro=3"}), "dp=2,micro=3,zero=1");
  EXPECT_EQ(parsed("dp=2,zero=1", {"layout.dp=4", "train.steps=7"}), "dp=4,zero=1");
  EXPECT_EQ(parsed("tp=2", {"layout.sp=off"}), "tp=2,sp=off");
  // A choice unmakes what the layout says of another, as it does a run file's.
  EXPECT_EQ(parsed("dp=2,zero=3,reshard=never", {"layout.zero=1"}), "dp=2,zero=1");
  EXPECT_EQ(parsed("dp=2,dp_kind=central", {"layout.dp_kind=ddp"}), "dp=2");
  try {
    parse_layout("dp=2", std::vector<std::string>{"layout.shard=2"});
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find("--set layout.shard=2: 'shard' does nothing with zero = 0"), 0u)
        << error.what();
  }
}

std::string spread_fault(LayoutSpec layout, std::int64_t ranks) {
  std::string words;
  const std::int64_t dp = layout.dp;
  const bool done = spread_over(layout, ranks, "-n ",
                                [&](std::string_view key, const std::string& problem, const std::string& remedy) {
                                  words = std::string(key) + ": " + problem + "; " + remedy;
                                });
  EXPECT_EQ(done, words.empty());
  EXPECT_EQ(layout.dp, done ? (ranks - layout.servers) / layout.line() : dp);
  return words;
}

TEST(LayoutText, RanksAreAllRanksAndDpIsWhatTheOtherAxesLeaveOfThem) {
  EXPECT_EQ(spread_fault({.dp = 5}, 7), "");
  EXPECT_EQ(spread_fault({.dp = 8, .cp = 2, .tp = 2}, 4), "");
  EXPECT_EQ(spread_fault({.pp = 2, .cp = 3, .tp = 2}, 36), "");
  EXPECT_EQ(spread_fault({.tp = 2}, 3), "tp: tp (2) does not divide 3 ranks; use -n 2 or -n 4, or another tp");
  EXPECT_EQ(spread_fault({.pp = 2, .tp = 4}, 4),
            "tp: pp times tp (8) does not divide 4 ranks; use -n 8, or a smaller tp");
  EXPECT_EQ(spread_fault({.dp_kind = DpKind::server, .servers = 3}, 7), "");
  EXPECT_EQ(spread_fault({.tp = 2, .dp_kind = DpKind::server, .servers = 4}, 10), "");
  EXPECT_EQ(spread_fault({.dp_kind = DpKind::server, .servers = 4}, 4),
            "servers: servers (4) leave none of 4 ranks to compute; use -n 5, or fewer servers");
  EXPECT_EQ(spread_fault({.tp = 2, .dp_kind = DpKind::server, .servers = 2}, 5),
            "tp: tp (2) does not divide 3 ranks beside 2 servers; use -n 4 or -n 6, or another tp");
  EXPECT_EQ(spread_fault({.cp = 2}, 1), "cp: cp (2) does not divide 1 rank; use -n 2, or a smaller cp");
}

const char* const kLaidOut =
    "[model]\npreset = \"llama-1m\"\n[data]\nexample = true\nseq = 16\n[train]\nglobal_batch = 24\n[layout]\ndp = "
    "6\ncp = 2\ntp = 2\nzero = 1\n";

std::string laid_out(const RunChanges& changes) {
  try {
    return to_text(parse_run(kLaidOut, "run.toml", ".", changes).layout);
  } catch (const UserError& error) {
    return error.what();
  }
}

// The same in every command: cli/run_arguments.h hands it on.
TEST(RunChanges, HaveOneMeaningWhateverTheFileSays) {
  using Sets = std::vector<std::string>;
  EXPECT_EQ(laid_out({}), "dp=6,cp=2,tp=2,zero=1");
  EXPECT_EQ(laid_out({.ranks = 4}), "cp=2,tp=2,zero=1");  // not 16 of them
  EXPECT_EQ(laid_out({.ranks = 12}), "dp=3,cp=2,tp=2,zero=1");
  EXPECT_EQ(laid_out({.ranks = 6}),
            "--ranks 6: cp times tp (4) does not divide 6 ranks; use --ranks 4 or --ranks 8, or another tp");
  EXPECT_EQ(laid_out({.ranks = 28}).find("--ranks 28: global_batch (24) is not a multiple of dp (7)"), 0u);
  EXPECT_EQ(laid_out({.layout = "dp=2"}), "dp=2");
  EXPECT_EQ(laid_out({.layout = "tp=2,micro=2", .ranks = 4}), "dp=2,tp=2,micro=2");
  EXPECT_EQ(laid_out({.layout = "dp=2,tp=2", .ranks = 4}), "dp=2,tp=2");
  EXPECT_EQ(laid_out({.layout = "dp=4,tp=2", .ranks = 4}),
            "--ranks 4: --layout dp=4 makes 8 ranks; leave one of the two out: without dp it is what the other axes "
            "leave of the ranks");
  const Sets micro{"layout.micro=2"}, dp{"layout.dp=2"}, tp{"layout.tp=1"};
  EXPECT_EQ(laid_out({.sets = micro, .layout = "dp=2"}), "dp=2,micro=2");
  EXPECT_EQ(laid_out({.sets = micro, .ranks = 8}), "dp=2,cp=2,tp=2,micro=2,zero=1");
  EXPECT_EQ(laid_out({.sets = dp, .ranks = 8}), "dp=2,cp=2,tp=2,zero=1");
  EXPECT_EQ(laid_out({.sets = dp, .ranks = 4}).find("--ranks 4: --set layout.dp=2 makes 8 ranks; leave one"), 0u);
  EXPECT_EQ(laid_out({.sets = tp, .ranks = 4}), "dp=2,cp=2,zero=1");
  EXPECT_EQ(laid_out({.layout = ""}), "--layout '': '' names no key and value; write it as in --layout dp=2,micro=4");
  EXPECT_EQ(laid_out({.layout = "dp=5"}).find("--layout dp=5: global_batch (24) is not a multiple of dp (5)"), 0u);
  EXPECT_EQ(laid_out({.layout = "zerro=5"}),
            "--layout zerro=5: unknown key 'zerro' in [layout]; the nearest known one is 'zero'");
}

std::string fault(std::int64_t batch, const LayoutSpec& layout) {
  std::string words;
  check_layout(batch, layout, [&](std::string_view key, const std::string& problem, const std::string& remedy) {
    if (words.empty()) words = std::string(key) + ": " + problem + "; " + remedy;
  });
  return words;
}

std::string tensor_fault(std::int64_t heads, std::int64_t kv_heads, const LayoutSpec& layout) {
  ModelSpec model;
  model.heads = heads;
  model.kv_heads = kv_heads;
  std::string words;
  check_tensor_layout(model, layout, [&](std::string_view key, const std::string& problem, const std::string& remedy) {
    if (words.empty()) words = std::string(key) + ": " + problem + "; " + remedy;
  });
  return words;
}

TEST(LayoutText, HeadsThatDoNotDivideAreRefusedWithWhatDoes) {
  EXPECT_EQ(tensor_fault(6, 3, {.tp = 2}),
            "tp: 6 heads with 3 key/value heads cannot be shared out to tp (2) ranks; use tp = 1, 3, 6");
  EXPECT_EQ(tensor_fault(8, 2, {.tp = 16}),
            "tp: 8 heads with 2 key/value heads cannot be shared out to tp (16) ranks; use tp = 1, 2, 4, 8");
  EXPECT_EQ(tensor_fault(8, 1, {.tp = 3}),
            "tp: 8 heads with 1 key/value head cannot be shared out to tp (3) ranks; use tp = 1, 2, 4, 8");
  EXPECT_EQ(tensor_fault(1, 1, {.tp = 2}),
            "tp: 1 head with 1 key/value head cannot be shared out to tp (2) ranks; use tp = 1");
  EXPECT_EQ(tensor_fault(8, 2, {.tp = 8}), "");
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
            "cp_kind: 2 heads with 1 key/value head of a rank cannot be exchanged between 4 ranks; use cp_kind = "
            "\"4x1\", \"2x2\"");
  EXPECT_EQ(context_fault(8, 8, 32, "cp=4,cp_kind=2x3"),
            "cp_kind: cp_kind = \"2x3\" is 6 ranks, and cp is 4; use cp = 6, or factors of 4");
  for (const std::string kind : {"rings", "x", "2x", "x2", "-2x-2", "2x2x1", "0x4", "2 x2", "99999999999999999999x1"})
    EXPECT_EQ(layout_refusal("cp=4,cp_kind='" + kind + "'"),
              "--layout cp_kind='" + kind + "': cp_kind = '" + kind +
                  "' says nothing; use \"ring\", \"ulysses\", or two factors of cp, ranks of a ring times ranks that "
                  "exchange heads, as in \"2x2\"");
  EXPECT_EQ(layout_refusal("cp_kind=rings"), "--layout cp_kind=rings: 'cp_kind' does nothing with cp = 1; remove it");
  EXPECT_EQ(layout_refusal("pp=2,stages=a+b"),
            "--layout stages=a+b: stages = 'a+b' says nothing; use \"cost\", \"even\", or the layers of each part by "
            "hand, as in \"3+5\"");
  // Rows are cut as evenly as they go: tokens need not be a multiple of tp.
  EXPECT_EQ(context_fault(8, 8, 24, "cp=2,tp=8"), "");
  EXPECT_EQ(context_fault(8, 8, 31, "tp=4"), "");
  EXPECT_EQ(context_fault(8, 8, 1, "tp=4"), "");
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
    const std::int64_t T = 3 * layout.context_split(0).multiple();
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

TEST(LayoutText, RoomForGatheredWeightsMayBeLeftToTheProgram) {
  const std::string file =
      "[model]\npreset = \"llama-1m\"\n[data]\nexample = true\nseq = 16\n[memory]\ngathered = \"auto\"\n[layout]\n"
      "dp = 2\n";
  const RunSpec spec = parse_run_toml(file + "zero = 3\n", "run.toml", ".");
  EXPECT_EQ(spec.memory.gathered, kGatheredAuto);
  EXPECT_EQ(parse_run_toml(to_toml(spec), "again.toml", ".").memory, spec.memory);
  const std::string sets[] = {"memory.gathered=8"};
  EXPECT_EQ(parse_run_toml(file + "zero = 3\n", "run.toml", ".", sets).memory.gathered, 8);
  try {
    parse_run_toml(file, "run.toml", ".");
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("run.toml:7: gathered = \"auto\" does nothing: "), std::string::npos)
        << error.what();
  }
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
