// What cutting samples costs: messages as derived, two blocks of keys and values, equal work, a part of the
// activations.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"
#include "tensor/make_stream.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

Replica::Options context_parallel_options(const ModelSpec& spec, const LayoutSpec& layout,
                                          Precision precision = Precision::fp32) {
  return {.spec = spec, .B = 4, .T = 48, .layout = layout, .precision = precision, .seed = 5};
}

// One step of one rank on meta: what it holds at most, and what it computes.
struct Costs {
  std::int64_t communication, activations;
  meta::Work work;
};
Costs on_meta_device(const Replica::Options& o, int rank) {
  Ledger ledger;
  const auto memory = make_memory(Device::meta, ledger);
  const auto stream = make_stream(*memory, 1, Device::cpu);
  meta::Communicator ranks(rank, static_cast<int>(o.layout.ranks()));
  Replica replica(o, {ranks, ranks}, *memory, *stream);
  const TokenBatch batch = random_batch(o, 1);
  const auto count = static_cast<std::size_t>(replica.given().count * o.T);
  replica.step(std::span(batch.tokens).first(count), std::span(batch.targets).first(count));
  return {ledger.peak(Tag::communication), ledger.peak(Tag::activation), dynamic_cast<meta::Stream&>(*stream).work()};
}

TEST(ContextParallelMessages, OfARingArePointToPointAndAsDerived) {
  for (const NamedSpec& model : cut_specs())
    for (const std::int64_t cp : {2, 3, 4, 8})
      for (const CpOrder order : {CpOrder::zigzag, CpOrder::plain})
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
          const LayoutSpec layout{.cp = cp, .cp_order = order, .micro = 2, .zero = 1};
          const Replica::Options o = context_parallel_options(model.spec, layout, precision);
          const Recorded one = on_meta(o, 1);
          const ModelSpec& s = model.spec;
          // A block of keys and values of a micro-batch goes round in the forward and in the backward, and once more
          // its gradient, in sums.
          const std::int64_t block = 2 * o.B / layout.micro * (o.T / cp) * s.kv_heads * s.head_width;
          const std::int64_t all = (cp - 1) * block * s.layers * layout.micro;
          if (precision == Precision::bf16) {
            EXPECT_EQ(one.elements(CommOp::send, DType::bf16), 2 * all) << model.name << ", " << to_text(layout);
            EXPECT_EQ(one.elements(CommOp::send, DType::f32), all) << model.name << ", " << to_text(layout);
          } else {
            EXPECT_EQ(one.elements(CommOp::send, DType::f32), 3 * all) << model.name << ", " << to_text(layout);
          }
          for (const auto& [key, counts] : one.sent)
            EXPECT_NE(key.first, CommOp::all_to_all) << model.name << ", " << to_text(layout);
          // Nothing beyond two blocks. What ZeRO sums and publishes lies elsewhere.
          const Costs costs = on_meta_device(o, 1);
          EXPECT_EQ(costs.communication, round_up(2 * block * size_of(storage_types(precision).compute), kAlignment))
              << model.name << ", " << to_text(layout);
        }
}

TEST(ContextParallelMessages, OfExchangedHeadsAreAsDerived) {
  for (const NamedSpec& model : cut_specs())
    for (const std::int64_t cp : {2, 3, 4, 8}) {
      const ModelSpec& s = model.spec;
      if (!heads_divide(s.heads, s.kv_heads, cp)) continue;
      LayoutSpec layout{.cp = cp, .micro = 2};
      layout.cp_kind = kUlysses;
      const Replica::Options o = context_parallel_options(model.spec, layout);
      const Recorded one = on_meta(o, 1);
      // Queries, keys, values and outputs, and the same of gradients; all but a rank's own part.
      const std::int64_t keys = std::max(s.kv_heads, cp), tokens = o.B * (o.T / cp);
      EXPECT_EQ(one.elements(CommOp::all_to_all, DType::f32),
                2 * (2 * s.heads + 2 * keys) * s.head_width * tokens * s.layers * (cp - 1) / cp)
          << model.name << ", " << to_text(layout);
      EXPECT_EQ(one.elements(CommOp::send, DType::f32), 0);
    }
}

TEST(ContextParallelMessages, AreWhatRealRanksSend) {
  for (const CpKind& kind : {kRing, kUlysses, CpKind::of_factors(2, 2)})
    for (const NamedSpec& model : {cut_specs()[8], cut_specs()[13]}) {
      LayoutSpec layout{.cp = 4, .micro = 2};
      layout.cp_kind = kind;
      const Replica::Options o = context_parallel_options(model.spec, layout);
      const std::vector<Recorded> real = on_threads(o);
      for (std::size_t r = 0; r < real.size(); ++r)
        EXPECT_EQ(real[r].sent, on_meta(o, static_cast<int>(r)).sent)
            << model.name << ", " << kind.text() << ", rank " << r;
    }
}

// Pairs of query and key that rank r has to do with, of one sample.
TEST(ContextParallelWork, IsEqualInZigZagAndAsUnequalAsTheorySaysInPlainOrder) {
  const ModelSpec s = tiny_specs()[0].spec;
  const Replica::Options one = context_parallel_options(s, {});
  for (const std::int64_t cp : {2, 3, 4, 8}) {
    LayoutSpec layout{.cp = cp};
    std::vector<std::int64_t> zigzag, plain;
    for (std::int64_t r = 0; r < cp; ++r) {
      layout.cp_order = CpOrder::zigzag;
      zigzag.push_back(on_meta_device(context_parallel_options(s, layout), static_cast<int>(r)).work.matmul_flops);
      layout.cp_order = CpOrder::plain;
      plain.push_back(on_meta_device(context_parallel_options(s, layout), static_cast<int>(r)).work.matmul_flops);
    }
    const std::int64_t block = one.T / cp;
    const std::int64_t a_pair = (4 + 10) * s.head_width * s.heads * s.layers * one.B;  // forward and backward
    for (std::int64_t r = 0; r < cp; ++r) {
      EXPECT_EQ(zigzag[static_cast<std::size_t>(r)], zigzag[0]) << r << " of " << cp;
      EXPECT_EQ(plain[static_cast<std::size_t>(r)] - plain[0], r * block * block * a_pair) << r << " of " << cp;
    }
    // The work of all is one rank's, either way.
    const std::int64_t alone = on_meta_device(one, 0).work.matmul_flops;
    EXPECT_EQ(std::accumulate(zigzag.begin(), zigzag.end(), std::int64_t{0}), alone) << cp;
    EXPECT_EQ(std::accumulate(plain.begin(), plain.end(), std::int64_t{0}), alone) << cp;
  }
}

// A long sample: activations of a rank are its part of one rank's, and it trains.
TEST(ContextParallelMemory, OfFourRanksIsAQuarterEach) {
  ModelSpec spec = tiny_specs()[0].spec;
  spec.layers = 2;
  spec.heads = spec.kv_heads = 1;
  spec.head_width = spec.width = 16;
  spec.ffn_width = 64;
  spec.max_positions = 32768;
  Replica::Options one{.spec = spec, .B = 1, .T = 32768, .layout = {}, .precision = Precision::fp32, .seed = 5};
  const std::int64_t alone = on_meta_device(one, 0).activations;
  Replica::Options four = one;
  four.layout.cp = 4;
  run_ranks(4, [&](std::unique_ptr<Communicator> group) {
    CpuDevice cpu;
    Replica replica(four, {*group, *group}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const TokenBatch batch = random_batch(four, 1);
    const Replica::Result result = replica.step(batch.tokens, batch.targets);
    EXPECT_TRUE(result.updated && std::isfinite(result.loss));
    const std::int64_t here = cpu.memory().ledger().peak(Tag::activation);
    EXPECT_LE(static_cast<double>(here), (0.25 + 0.1 * 0.25) * static_cast<double>(alone)) << group->rank();
    EXPECT_EQ(here, on_meta_device(four, group->rank()).activations);
  });
  // Deeper, with more heads. Where heads are exchanged outputs are kept twice, by tokens and by heads.
  one.spec.layers = 8;
  one.spec.heads = one.spec.kv_heads = 2;
  one.spec.head_width = 8;
  const std::int64_t deep = on_meta_device(one, 0).activations;
  for (const auto& [kind, part] : {std::pair{kRing, 0.275}, {CpKind::of_factors(2, 2), 0.29}}) {
    four.spec = one.spec;
    four.layout.cp_kind = kind;
    EXPECT_LE(static_cast<double>(on_meta_device(four, 2).activations), part * static_cast<double>(deep))
        << kind.text();
  }
}

}  // namespace
}  // namespace lockstep::tests
