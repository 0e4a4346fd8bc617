// LoRA's bytes, messages and work: adapters have what is trained has, the base its weights in the type that computes.
#include <gtest/gtest.h>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "spec/model/model_flops.h"
#include "spec/model/projections.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

Replica::Options counted_adapters(const ModelSpec& spec, const LayoutSpec& layout = {},
                                  Precision precision = Precision::bf16, std::vector<std::string> targets = {"all"}) {
  Replica::Options o = learning_options(spec, layout, precision);
  o.T = 12;
  o.how.lora = {.rank = 3, .alpha = 4, .targets = std::move(targets)};
  return o;
}

ModelSpec plain_llama() { return tiny_specs()[0].spec; }

std::vector<LayoutSpec> counted_layouts() {
  return {{},
          {.micro = 2},
          {.dp = 3},
          {.dp = 3, .micro = 2, .zero = 1},
          {.dp = 2, .micro = 2, .zero = 2},
          {.dp = 3, .micro = 2, .zero = 3},
          {.tp = 3},
          {.tp = 3, .sp = Switch::off},
          {.pp = 2, .schedule = ScheduleKind::zb_h1, .micro = 4},
          {.pp = 2, .schedule = ScheduleKind::interleaved, .chunks = 2, .micro = 4},
          {.cp = 2},
          {.dp = 2, .pp = 2, .tp = 3, .micro = 2, .zero = 3}};
}

// After a step.
struct HeldBytes {
  std::vector<std::tuple<Tag, std::string, std::int64_t, std::int64_t>> rows;
  std::int64_t current(Tag tag) const {
    std::int64_t sum = 0;
    for (const auto& [of, unit, now, peak] : rows) sum += of == tag ? now : 0;
    return sum;
  }
  std::int64_t peak(Tag tag) const {
    std::int64_t sum = 0;
    for (const auto& [of, unit, now, peak] : rows) sum += of == tag ? peak : 0;
    return sum;
  }
};

HeldBytes bytes_after_a_step(const Replica::Options& o, Communicator& ranks, Memory& memory, Stream& stream) {
  Replica replica(o, {ranks, ranks}, memory, stream);
  replica.init_weights();
  const TokenBatch all = random_batch(o, 0);
  const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
    return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                    static_cast<std::size_t>(given.count * o.T));
  };
  replica.step(part(all.tokens), part(all.targets));
  replica.settle();
  HeldBytes held;
  for (const auto& [key, count] : memory.ledger().rows())
    held.rows.emplace_back(key.first, key.second, count.current, count.peak);
  return held;
}

std::vector<HeldBytes> bytes_by_ranks(const Replica::Options& o) {
  std::vector<HeldBytes> all(static_cast<std::size_t>(o.layout.ranks()));
  run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    CpuDevice cpu;
    all[rank] = bytes_after_a_step(o, *group, cpu.memory(), cpu.stream());
  });
  return all;
}

HeldBytes bytes_on_meta(const Replica::Options& o, int rank) {
  meta::Communicator ranks(rank, static_cast<int>(o.layout.ranks()));
  MetaDevice meta;
  const Buffer scratch = meta.memory().allocate(cpu::kScratchBytes, Tag::workspace);  // of a stream's thread
  return bytes_after_a_step(o, ranks, meta.memory(), meta.stream());
}

class LoraCostsOf : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(LoraCostsOf, AreOnMetaWhatTheyAreOnRanks) {
  for (const LayoutSpec& layout : counted_layouts()) {
    if (!heads_divide(GetParam().spec.heads, GetParam().spec.kv_heads, layout.tp)) continue;
    for (const std::vector<std::string>& targets :
         {std::vector<std::string>{"all"}, {GetParam().spec.family == Family::gpt2 ? "c_attn" : "q_proj"}}) {
      const Replica::Options o = counted_adapters(GetParam().spec, layout, Precision::bf16, targets);
      const std::vector<HeldBytes> real = bytes_by_ranks(o);
      const std::vector<Recorded> sent = on_threads(o);
      for (int r = 0; r < layout.ranks(); ++r) {
        EXPECT_EQ(bytes_on_meta(o, r).rows, real[static_cast<std::size_t>(r)].rows)
            << to_text(layout) << ", rank " << r;
        EXPECT_EQ(on_meta(o, r).sent, sent[static_cast<std::size_t>(r)].sent) << to_text(layout) << ", rank " << r;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Some, LoraCostsOf,
                         ::testing::Values(tiny_specs()[0], tiny_specs()[1], tiny_specs()[2], tiny_specs()[6]),
                         [](const auto& info) { return info.param.name; });

// 2 bytes of the base for each element, and 18 of adapters: weight 2, master 4, moments 8, gradient 4.
TEST(LoraMemory, HasGradientsMastersAndMomentsOfAdaptersAlone) {
  const Replica::Options o = counted_adapters(plain_llama());
  const Model model(o.spec, 1, 1, DType::bf16, {.lora = o.how.lora});
  const Model plain(o.spec, 1, 1, DType::bf16);
  for (const LayoutSpec& layout : std::vector<LayoutSpec>{{}, {.dp = 2}, {.dp = 2, .zero = 1}, {.dp = 2, .zero = 3}}) {
    Replica::Options run = o;
    run.layout = layout;
    const Shard shard{.index = 0, .count = layout.shards()};
    std::int64_t adapters = 0, own = 0, base = 0, base_own = 0;
    for (int u = 0; u < model.units(); ++u) {
      const UnitLayout& unit = model.unit(u).layout();
      EXPECT_EQ(unit.frozen(), plain.unit(u).layout().owned()) << "all that a plain run trains";
      adapters += shard.padded(unit.owned());
      own += shard.elements(unit.owned());
      base += unit.frozen();
      base_own += shard.elements(unit.frozen());
    }
    const HeldBytes held = bytes_by_ranks(run).front();
    const bool cuts = layout.zero == 3;
    EXPECT_EQ(held.current(Tag::optimizer), 12 * own) << to_text(layout);
    EXPECT_EQ(held.current(Tag::gradient), 4 * (cuts ? own : adapters)) << to_text(layout);
    EXPECT_EQ(held.current(Tag::parameter), 2 * (cuts ? own + base_own : adapters + base)) << to_text(layout);
  }
}

TEST(LoraMemory, KeepsOfActivationsWhatAdaptersRead) {
  std::int64_t before = 0;
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"q_proj"}, {"q_proj", "o_proj"}, {"q_proj", "o_proj", "down_proj"}, {"all"}}) {
    ModelSpec deep = plain_llama();
    deep.layers = 8;
    const HeldBytes held = bytes_on_meta(counted_adapters(deep, {}, Precision::bf16, targets), 0);
    EXPECT_GT(held.peak(Tag::activation), before) << fmt::format("{}", targets.back());
    before = held.peak(Tag::activation);
  }
}

// A sum of adapters' gradients alone: 2 Ψ (N - 1) / N.
TEST(LoraMessages, OfDataParallelAreThoseOfAdapters) {
  for (const int ranks : {2, 4}) {
    const Replica::Options o = counted_adapters(plain_llama(), {.dp = ranks});
    const Recorded sent = on_meta(o, 0);
    EXPECT_GE(sent.stored, lora_parameters(o.spec, o.how.lora));
    ASSERT_EQ(sent.stored % ranks, 0);
    EXPECT_EQ(sent.elements(CommOp::all_reduce, DType::f32), 2 * sent.stored * (ranks - 1) / ranks);
  }
}

std::int64_t product_operations(const Replica::Options& o) {
  MetaDevice meta;
  Replica replica(o, meta.memory(), meta.stream());
  replica.init_weights();
  meta.work() = {};
  const TokenBatch batch = random_batch(o, 0);
  replica.step(batch.tokens, batch.targets);
  return meta.work().matmul_flops;
}

// No product gives the gradient of a frozen weight, and none that of the first block's input.
TEST(LoraWork, IsThatOfInputGradientsAndAdapters) {
  for (const ModelSpec& spec : {plain_llama(), tiny_specs()[6].spec}) {
    const Replica::Options lora = counted_adapters(spec);
    Replica::Options plain = lora;
    plain.how.lora = {};
    const std::int64_t N = lora.B * lora.T, r = lora.how.lora.rank;
    std::int64_t weights = spec.vocabulary * spec.width, adapters = 0, first = 0;
    for (const Projection& p : projections_of(spec)) {
      weights += spec.layers * p.in * p.out;
      adapters += spec.layers * 6 * r * (p.in + p.out);
      const bool reads_input = p.name.ends_with("q_proj") || p.name.ends_with("k_proj") || p.name.ends_with("v_proj") ||
                               p.name.ends_with("c_attn");
      if (reads_input) first += 2 * p.in * (p.out + r);
    }
    EXPECT_EQ(product_operations(plain) - product_operations(lora), N * (2 * weights + first - adapters));
  }
}

TEST(LoraWork, IsCountedAsTheFieldCountsIt) {
  const ModelSpec spec = plain_llama();
  const LoraSpec lora{.rank = 3};
  const SampleWork sample = SampleWork::of_sequence(12);
  const double whole = model_flops(spec, 8, sample), adapted = model_flops(spec, 8, sample, lora);
  const double tokens = 8 * 12;
  EXPECT_DOUBLE_EQ(whole - adapted, tokens * (2.0 * static_cast<double>(matmul_parameters(spec)) -
                                              6.0 * static_cast<double>(lora_parameters(spec, lora))));
  EXPECT_EQ(lora_parameters(spec, lora),
            2 * 3 * ((24 + 24) + 2 * (24 + 12) + (24 + 24) + 2 * (24 + 29) + (29 + 24)));  // two layers
  EXPECT_DOUBLE_EQ(model_flops(spec, 8, sample, {}), whole);
}

}  // namespace
}  // namespace lockstep::tests
