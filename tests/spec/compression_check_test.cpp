// [sync] compress and feedback: what is read and written, and what is refused, with a remedy that works.
#include <fmt/format.h>

#include "run_toml_cases.h"

namespace lockstep {
namespace {

TEST(CompressedRun, IsReadAndWritten) {
  for (const char* form : {"bf16", "int8", "onebit", "topk:0.01"})
    for (const bool feedback : {true, false}) {
      const RunSpec run = parse(
          kBase, {"layout.dp=2", fmt::format("sync.compress={}", form), fmt::format("sync.feedback={}", feedback)});
      EXPECT_EQ(run.sync.compress.text(), form);
      EXPECT_EQ(run.sync.feedback, feedback);
      EXPECT_TRUE(run.sync.changes_numbers());
      EXPECT_EQ(parse(to_toml(run)), run);
    }
}

TEST(CompressedRun, MayGatherWeightsInBlocks) {
  const RunSpec run = parse(kBase, {"layout.dp=2", "layout.zero=3", "sync.compress_weights=int8"});
  EXPECT_EQ(run.sync.compress_weights.text(), "int8");
  EXPECT_TRUE(run.sync.changes_numbers());
  EXPECT_EQ(parse(to_toml(run)), run);
}

TEST(CompressedRun, MaySendActivationsInFewerBytes) {
  for (const char* form : {"bf16", "int8", "onebit", "topk:0.1"}) {
    const RunSpec run = parse(kBase, {"layout.pp=2", fmt::format("sync.compress_activations={}", form)});
    EXPECT_EQ(run.sync.compress_activations.text(), form);
    EXPECT_TRUE(run.sync.changes_numbers());
    EXPECT_EQ(parse(to_toml(run)), run);
  }
}

struct RefusedCompression {
  Sets sets;
  const char* problem;
  Sets remedy;  // with which it is accepted
};

// dp = 2 and int8, unless a case says otherwise.
const std::vector<RefusedCompression>& refused_compressions() {
  static const std::vector<RefusedCompression> all{
      {{"layout.dp=1"}, "compress does nothing with dp = 1", {"layout.dp=2"}},
      {{"sync.compress=topk:0"}, "'topk:0' says nothing", {"sync.compress=topk:0.01"}},
      {{"sync.compress=topk:2"}, "'topk:2' says nothing", {"sync.compress=topk:0.01"}},
      {{"layout.dp_kind=central"}, "dp_kind is \"central\"", {"layout.dp_kind=ddp"}},
      {{"layout.tp=4", "model.kv_heads=2"}, "the same key/value heads (2)", {"layout.tp=2"}},
      {{"layout.tp=2", "sync.compress=onebit"}, "the padding of layers", {"sync.compress=int8"}},
      {{"layout.reduce=native"}, "reduce = \"native\" does nothing", {"layout.reduce=canonical"}},
      {{"layout.dp=4", "layout.zero=1", "layout.shard=2"}, "sharded over 2 of 4 ranks", {"layout.shard=0"}},
      {{"precision.compute=fp16"}, "another loss scale", {"precision.compute=bf16"}},
      {{"layout.zero=2", "memory.offload_gradients=disk"}, "offloaded", {"memory.offload_gradients=none"}},
      {{"layout.zero=2", "model.tied=true"}, "tied", {"layout.grad_sync=step"}},
      {{"sync.compress_weights=int8"}, "no weights are gathered", {"layout.zero=3"}},
      {{"layout.zero=3", "sync.compress_weights=bf16"}, "not in bf16", {"sync.compress_weights=int8"}},
      {{"layout.zero=3", "sync.compress_weights=int8", "sync.compress=none", "layout.tp=4", "model.kv_heads=2"},
       "the same key/value heads",
       {"layout.tp=2"}},
      {{"layout.zero=3", "sync.compress_weights=int8", "memory.offload_parameters=disk"},
       "weights that are offloaded",
       {"memory.offload_parameters=none"}},
      {{"layout.embedding_gradient=auto"}, "embedding_gradient is \"auto\"", {"layout.embedding_gradient=dense"}},
      {{"sync.compress_activations=int8"}, "no activations are sent", {"layout.pp=2"}},
      {{"layout.pp=2", "sync.compress_activations=bf16", "precision.compute=bf16"},
       "16 bits already",
       {"sync.compress_activations=int8"}},
      {{"layout.pp=2", "sync.compress_activations=topk:0.7"},
       "no fewer than all have",
       {"sync.compress_activations=topk:0.66"}},
  };
  return all;
}

TEST(CompressedRun, IsRefusedWhereItHasNoMeaningWithARemedyThatWorks) {
  for (const RefusedCompression& one : refused_compressions()) {
    Sets sets{"layout.dp=2", "sync.compress=int8"};
    sets.insert(sets.end(), one.sets.begin(), one.sets.end());
    const std::string message = refusal(kBase, sets);
    EXPECT_NE(message.find(one.problem), std::string::npos) << one.sets.back() << ": " << message;
    sets.insert(sets.end(), one.remedy.begin(), one.remedy.end());
    EXPECT_NO_THROW(parse(kBase, sets)) << one.sets.back() << ", then " << one.remedy.back();
  }
}

}  // namespace
}  // namespace lockstep
