// The loss taken in chunks of tokens learns what it learns in one, in every layout.
#include <gtest/gtest.h>

#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

TEST(LossInChunks, LearnsWhatOneChunkLearns) {
  for (const NamedSpec& named : cut_specs()) {
    if (named.name != "llama_8_heads" && named.name != "gpt2_dropout_8_heads") continue;
    Replica::Options one = learning_options(named.spec, {}, Precision::fp64);
    const Learned whole = learn(one, 2);
    for (const LayoutSpec& layout : {LayoutSpec{},
                                     {.micro = 3},
                                     {.dp = 2, .micro = 2, .zero = 3},
                                     {.dp = 3, .micro = 2, .dp_kind = DpKind::central},
                                     {.dp = 5, .micro = 2, .dp_kind = DpKind::central, .uneven = Switch::on},
                                     {.tp = 2, .micro = 2},
                                     {.tp = 4, .sp = Switch::on, .micro = 2},
                                     {.pp = 2, .micro = 4}})
      for (const std::int64_t chunk : {5, 17}) {
        Replica::Options cut = learning_options(named.spec, layout, Precision::fp64);
        cut.how.loss_tokens = chunk;
        expect_close(learn(cut, 2), whole, 1e-11, fmt::format("{}: {}, chunk {}", named.name, to_text(layout), chunk));
      }
  }
}

}  // namespace
}  // namespace lockstep::tests
