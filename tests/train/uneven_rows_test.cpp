// Tokens that do not divide between the ranks that cut a layer: some of them have one more, and nothing else changes.
#include <gtest/gtest.h>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/host_run.h"
#include "support/learning_ranks.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

// Llama with 3 key/value heads for 6 heads, and GPT-2 with dropout everywhere, biases and learned positions.
std::vector<NamedSpec> llama_and_gpt2() { return {tiny_specs().front(), tiny_specs().back()}; }

Replica::Options uneven(const ModelSpec& spec, const LayoutSpec& layout, std::int64_t T) {
  Replica::Options options = learning_options(spec, layout, Precision::fp64);
  options.T = T;
  options.B = 6;
  return options;
}

struct UnevenCase {
  LayoutSpec layout;
  std::int64_t T;
};
// Rows of a micro-batch: its samples times T / cp; none of them a multiple of tp.
std::vector<UnevenCase> uneven_cases() {
  return {{{.tp = 3, .micro = 3}, 7},
          {{.tp = 3, .tp_chunks = 1, .micro = 6}, 7},
          {{.tp = 3, .micro = 6}, 2},  // the last has no row
          {{.tp = 6, .micro = 6}, 4},  // two have none
          {{.dp = 2, .tp = 3, .micro = 3, .zero = 3}, 7},
          {{.cp = 2, .tp = 3, .micro = 6, .zero = 1}, 20},
          {{.pp = 2, .cp = 2, .tp = 3, .micro = 6}, 8}};
}

TEST(UnevenRows, LearnWhatOneRankLearns) {
  for (const NamedSpec& model : llama_and_gpt2())
    for (const UnevenCase& c : uneven_cases()) {
      const std::int64_t rows = 6 / c.layout.dp / c.layout.micro * c.T / c.layout.cp;
      ASSERT_NE(rows % c.layout.tp, 0) << to_text(c.layout);
      const Learned one = learn(uneven(model.spec, {}, c.T), 2);
      expect_close(learn(uneven(model.spec, c.layout, c.T), 2), one, kCloseInDouble,
                   fmt::format("{}, {}, T={}", model.name, to_text(c.layout), c.T));
    }
}

TEST(UnevenRows, KeepEveryBitWithAndWithoutOverlapAndRecomputing) {
  const NamedSpec model = llama_and_gpt2().front();
  for (const UnevenCase& c : {uneven_cases()[0], uneven_cases()[5]}) {
    Replica::Options options = uneven(model.spec, c.layout, c.T);
    const Learned plain = learn(options, 2);
    options.how.memory.recompute = Recompute::full;
    expect_equal(learn(options, 2), plain, "recomputing");
    options.layout.overlap = Switch::off;
    expect_equal(learn(options, 2), plain, "without overlap");
  }
}

// By tag, of each rank, after a step.
using Peaks = std::array<std::int64_t, kTags>;

Peaks peaks_on_meta(const Replica::Options& o, int rank) {
  Ledger ledger;
  const auto memory = make_memory(Device::meta, ledger);
  const auto stream = make_stream(*memory, 1, Device::cpu);
  meta::Communicator ranks(rank, static_cast<int>(o.layout.ranks()));
  Replica replica(o, {ranks, ranks}, *memory, *stream);
  const TokenBatch batch = random_batch(o, 1);
  const auto count = static_cast<std::size_t>(replica.given().count * o.T);
  replica.step(std::span(batch.tokens).first(count), std::span(batch.targets).first(count));
  Peaks peaks{};
  for (int t = 0; t < kTags; ++t) peaks[static_cast<std::size_t>(t)] = ledger.peak(static_cast<Tag>(t));
  return peaks;
}

TEST(UnevenRows, CostWhatMetaSays) {
  for (const NamedSpec& model : llama_and_gpt2())
    for (const UnevenCase& c : uneven_cases()) {
      const Replica::Options o = uneven(model.spec, c.layout, c.T);
      const std::string what = fmt::format("{}, {}, T={}", model.name, to_text(c.layout), c.T);
      const std::vector<Recorded> real = on_threads(o);
      for (std::size_t r = 0; r < real.size(); ++r)
        EXPECT_EQ(real[r].sent, on_meta(o, static_cast<int>(r)).sent) << what << ", rank " << r;
      run_ranks(static_cast<int>(o.layout.ranks()), [&](std::unique_ptr<Communicator> ranks) {
        Ledger ledger;
        const auto memory = make_memory(Device::cpu, ledger);
        const auto stream = make_stream(*memory, 1);
        Replica replica(o, {*ranks, *ranks}, *memory, *stream);
        replica.init_weights();
        const TokenBatch batch = random_batch(o, 1);
        const Share given = replica.given();
        const auto part = [&](const std::vector<std::int32_t>& all) {
          return std::span(all).subspan(static_cast<std::size_t>(given.first * o.T),
                                        static_cast<std::size_t>(given.count * o.T));
        };
        replica.step(part(batch.tokens), part(batch.targets));
        replica.settle();
        const Peaks planned = peaks_on_meta(o, ranks->rank());
        for (int t = 0; t < kTags; ++t)
          EXPECT_EQ(ledger.peak(static_cast<Tag>(t)), planned[static_cast<std::size_t>(t)])
              << what << ", rank " << ranks->rank() << ", " << name_of(static_cast<Tag>(t));
      });
    }
}

}  // namespace
}  // namespace lockstep::tests
