// Levers together change no bit: state offloaded while blocks recompute, with clipping and several micro-batches.
#include <gtest/gtest.h>

#include "spec/layout/layout_toml.h"
#include "support/learning_ranks.h"
#include "support/levers.h"

namespace lockstep::tests {
namespace {

TEST(LeverBits, OfOffloadAndRecomputationAreThoseOfNone) {
  const ModelSpec model = run_without_levers("micro=2").model;
  const MemorySpec on_disk{.recompute = Recompute::full, .offload_optimizer = Offload::disk, .offload_window = 1},
      on_host{.recompute = Recompute::projections,
              .recompute_every = 2,
              .offload_optimizer = Offload::host,
              .offload_share = 0.5};
  for (const char* text :
       {"micro=2", "dp=4,micro=2", "dp=4,zero=1,micro=2", "dp=4,zero=2,micro=2", "dp=4,zero=3,micro=2",
        "dp=4,zero=3,shard=2,micro=2", "pp=2,micro=4", "tp=2,micro=2", "cp=2,micro=2", "dp=2,pp=2,zero=1,micro=2"})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      Replica::Options o = learning_options(model, parse_layout(text), precision);
      o.T = 12;
      const Learned none = learn(o, 2);
      for (const double norm : none.norms) ASSERT_GT(norm, o.optimizer.clip) << "it is to clip";
      for (const MemorySpec& memory : {on_disk, on_host}) {
        o.how.memory = memory;
        expect_equal(learn(o, 2), none,
                     std::string(text) + ", " + std::string(name_of(precision)) + ", " +
                         std::string(name_of(memory.offload_optimizer)));
      }
    }
}

}  // namespace
}  // namespace lockstep::tests
