// What ranks that cut layers between them send: the recorder of real ranks, the recorder on meta, and the derivation
// (docs/tensor-parallel.md) are one. No logit is ever sent.
#include <gtest/gtest.h>

#include "comm/traffic.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kSamples = 12, kTokens = 24;

Replica::Options tensor_parallel_options(const ModelSpec& spec, const LayoutSpec& layout,
                                         Precision precision = Precision::bf16) {
  return {.spec = spec, .B = kSamples, .T = kTokens, .layout = layout, .precision = precision, .seed = 5};
}

ModelSpec wider_model(std::int64_t layers, std::int64_t heads = 6) {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.layers = layers;
  spec.width = 48;
  spec.heads = heads;
  spec.kv_heads = std::min<std::int64_t>(heads, 3);
  return spec;
}

TEST(TensorParallelMessages, MetaCountsWhatRanksSend) {
  for (const NamedSpec& named : tiny_specs())
    for (const Switch sp : {Switch::off, Switch::on})
      for (const LayoutSpec& layout : {LayoutSpec{.tp = 3, .sp = sp},
                                       {.tp = 6, .sp = sp, .micro = 2},
                                       {.dp = 2, .tp = 3, .sp = sp, .micro = 2, .zero = 1},
                                       {.dp = 2, .tp = 3, .sp = sp, .micro = 2, .zero = 3}}) {
        const Replica::Options o = tensor_parallel_options(named.spec, layout);
        const std::vector<Recorded> real = on_threads(o);
        for (int r = 0; r < layout.ranks(); ++r)
          EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent)
              << named.name << ", " << to_text(layout) << ", rank " << r;
      }
}

// In units of (tp - 1) / tp of the activations between two layers, N tokens wide C, a micro-batch.
TEST(TensorParallelMessages, AreWhatIsDerived) {
  for (const std::int64_t layers : {1, 2, 7})
    for (const std::int64_t tp : {2, 3, 6, 24})
      for (const std::int64_t micro : {1, 3}) {
        const ModelSpec spec = wider_model(layers, tp == 2 ? 8 : tp == 24 ? 24 : 6);
        if (!heads_divide(spec.heads, spec.kv_heads, tp)) continue;
        const auto sent = [&](Switch sp) {
          return on_meta(tensor_parallel_options(spec, {.tp = tp, .sp = sp, .micro = micro}), 0);
        };
        const std::int64_t all = kSamples * kTokens * spec.width;  // of all micro-batches
        const std::int64_t once = all / tp * (tp - 1);
        const std::int64_t statistics = 3 * kSamples * kTokens * (tp - 1);
        const std::string what = fmt::format("{} layers, tp={}, micro={}", layers, tp, micro);

        const Recorded plain = sent(Switch::off);
        // A layer: each of its two branches is summed once forward and once backward. The embedding is summed, and what
        // the head makes the gradient of its inputs.
        EXPECT_EQ(plain.elements(CommOp::all_reduce, DType::bf16), 2 * once * (4 * layers + 2)) << what;
        EXPECT_EQ(plain.elements(CommOp::all_gather, DType::bf16), 0) << what;
        EXPECT_EQ(plain.elements(CommOp::reduce_scatter, DType::bf16), 0) << what;

        const Recorded cut = sent(Switch::on);
        // The same sums, of which each rank gets its rows; gathered before the first product of a branch and before the
        // backward of its second, and once more for the first one's weights.
        EXPECT_EQ(cut.elements(CommOp::reduce_scatter, DType::bf16), once * (4 * layers + 2)) << what;
        EXPECT_EQ(cut.elements(CommOp::all_gather, DType::bf16), once * (6 * layers + 2)) << what;
        EXPECT_EQ(cut.elements(CommOp::all_reduce, DType::bf16), 0) << what;

        // Three numbers a token and rank for the loss: the one message that knows the vocabulary.
        for (const Recorded* one : {&plain, &cut})
          EXPECT_EQ(one->elements(CommOp::all_gather, DType::f32), statistics) << what;
      }
}

// A step sums the gradients of norms, of which each rank has a part when tokens are cut; those of key/value heads that
// several ranks have, over these ranks; and nothing else.
TEST(TensorParallelMessages, OfGradientsAreThoseOfNormsAndSharedHeads) {
  const std::int64_t C = 48, padded = 256;
  const auto all_reduced = [](std::int64_t elements, std::int64_t ranks) {
    Message message{.op = CommOp::all_reduce};
    const Tensor x(nullptr, DType::f32, Device::meta, {elements});
    message.in = message.out = x;
    return traffic_of(message, 0, static_cast<int>(ranks)).sent;
  };
  const ModelSpec own = wider_model(3), shared = wider_model(3);
  EXPECT_EQ(
      on_meta(tensor_parallel_options(own, {.tp = 3, .sp = Switch::off}), 0).elements(CommOp::all_reduce, DType::f32),
      0);
  EXPECT_EQ(on_meta(tensor_parallel_options(own, {.tp = 3}), 0).elements(CommOp::all_reduce, DType::f32),
            3 * all_reduced(padded + C, 3) + all_reduced(C, 3));
  // Six ranks, three key/value heads: two ranks to a head, whose projections lie side by side.
  const std::int64_t keys_and_values = 2 * shared.head_width * C;
  EXPECT_EQ(on_meta(tensor_parallel_options(shared, {.tp = 6, .sp = Switch::off}), 0)
                .elements(CommOp::all_reduce, DType::f32),
            3 * all_reduced(keys_and_values, 2));
}

}  // namespace
}  // namespace lockstep::tests
