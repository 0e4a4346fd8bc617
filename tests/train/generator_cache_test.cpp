// Generation on ranks that have the cache of keys and values between them, by itself and with the model cut in depth
// and across layers: the logits of one rank on all of them, each with its rows alone.
#include <gtest/gtest.h>

#include <cmath>

#include "base/integers.h"
#include "comm/meta/communicator.h"
#include "support/host_generator.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

using Pieces = std::vector<std::int64_t>;

// Token by token, all at once, and of both; two of them leave ranks without a row for a while.
const std::vector<Pieces> kWaysToRead{Pieces(kTextTokens, 1), {kTextTokens}, {2, 6, 5, 1, 18}, {11, 1, 1, 19}};

struct Cut {
  int pp, cp, tp;
};

Generator::Options split_cache_options(const ModelSpec& spec, Precision precision, std::int64_t prefill,
                                       const Cut& cut = {1, 1, 1}) {
  return {
      .spec = spec, .positions = kTextTokens, .prefill = prefill, .precision = precision, .pp = cut.pp, .cp = cut.cp};
}

// After each piece of each text; what was read before is forgotten.
Logits read_every_way(HostGenerator& host, std::span<const std::int32_t> tokens) {
  Logits all;
  for (const Pieces& pieces : kWaysToRead) {
    host.generator->clear();
    std::int64_t first = 0;
    for (const std::int64_t count : pieces) {
      all.push_back(host.feed(tokens.subspan(first, count)));
      first += count;
    }
  }
  return all;
}

double relative_error(std::span<const double> got, std::span<const double> expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(got[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / size);
}

class SplitCachesGenerate : public ::testing::TestWithParam<NamedSpec> {
 protected:
  SplitCachesGenerate() : run_(trained(options_)), values_(values_of(*run_)), batch_(random_batch(options_, 1)) {}

  // Where a rank's logits differ most from one rank's, of all it gets.
  double error(Precision precision, std::int64_t prefill, const Cut& cut) const {
    HostGenerator one(split_cache_options(spec(), precision, prefill));
    one.copy(values_);
    const Logits expected = read_every_way(one, batch_.tokens);
    std::vector<Logits> all(static_cast<std::size_t>(cut.pp * cut.cp * cut.tp));
    on_ranks(split_cache_options(spec(), precision, prefill, cut), cut.tp, [&](int rank, HostGenerator& host) {
      host.copy(values_);
      all[static_cast<std::size_t>(rank)] = read_every_way(host, batch_.tokens);
    });
    for (const Logits& other : all) EXPECT_EQ(other, all[0]);
    double most = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) most = std::max(most, relative_error(all[0][i], expected[i]));
    return most;
  }
  const ModelSpec& spec() const { return GetParam().spec; }
  int some_tp() const { return heads_divide(spec().heads, spec().kv_heads, 2) ? 2 : 3; }

  Replica::Options options_{.spec = GetParam().spec, .B = 1, .T = kTextTokens, .precision = Precision::fp64, .seed = 3};
  std::unique_ptr<HostRun> run_;
  TensorValues values_;
  TokenBatch batch_;
};

TEST_P(SplitCachesGenerate, TheLogitsOfOneRankAndTheSameBitsOnAll) {
  const int tp = some_tp();
  for (const Cut& cut : {Cut{1, 2, 1}, {1, 3, 1}, {1, 4, 1}, {1, 2, tp}, {2, 3, 1}, {2, 2, tp}})
    for (const std::int64_t prefill : {1, 4, 7}) {
      EXPECT_LT(error(Precision::fp64, prefill, cut), 1e-12)
          << cut.pp << " x " << cut.cp << " x " << cut.tp << " ranks, runs of " << prefill;
    }
}

TEST_P(SplitCachesGenerate, InEveryPrecision) {
  EXPECT_LT(error(Precision::fp32, 4, {1, 3, 1}), 1e-5);
  EXPECT_LT(error(Precision::fp32, 7, {1, 2, some_tp()}), 1e-5);
  EXPECT_LT(error(Precision::bf16, 4, {1, 3, 1}), 0.05);
  EXPECT_LT(error(Precision::bf16, 7, {2, 2, 1}), 0.05);
}

INSTANTIATE_TEST_SUITE_P(All, SplitCachesGenerate, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(GeneratorOnCacheRanks, HoldsItsPartOfTheCacheAndRoomForAChunk) {
  const ModelSpec spec = tiny_specs()[0].spec;
  struct Room {
    int cp;
    std::int64_t prefill, rows;
  };
  // Of 32 tokens. A run that is all of them is never read.
  for (const auto& [cp, prefill, rows] : std::vector<Room>{
           {2, 1, 16}, {3, 1, 11}, {4, 1, 8}, {5, 1, 7}, {2, 4, 18}, {3, 4, 13}, {4, 4, 11}, {4, 32, 8}, {40, 1, 1}})
    on_ranks(split_cache_options(spec, Precision::fp32, prefill, {1, cp, 1}), 1,
             [&, cp = cp, prefill = prefill, rows = rows](int, HostGenerator& host) {
               for (const char* block : {"block.0", "block.1"})
                 EXPECT_EQ(host.ledger.rows().at({Tag::activation, block}).current,
                           round_up(2 * rows * spec.kv_heads * spec.head_width * 4, kAlignment))
                     << cp << " ranks, runs of " << prefill;
             });
}

TEST(GeneratorOnCacheRanks, TakesOnMetaWhatItTakesOnTheCpuAndNothingWhileReading) {
  for (const NamedSpec& model : tiny_specs())
    for (const Cut& cut : {Cut{1, 3, 1}, {2, 2, 1}, {2, 2, 3}}) {
      const Replica::Options text{
          .spec = model.spec, .B = 1, .T = kTextTokens, .precision = Precision::fp64, .seed = 3};
      const TensorValues values = values_of(*trained(text));
      const TokenBatch batch = random_batch(text, 1);
      const Generator::Options options = split_cache_options(model.spec, Precision::bf16, 4, cut);
      on_ranks(options, cut.tp, [&](int rank, HostGenerator& real) {
        real.copy(values);
        const std::int64_t before = real.ledger.allocations();
        read_every_way(real, batch.tokens);
        EXPECT_EQ(real.ledger.allocations(), before);
        Ledger ledger;
        const auto memory = make_memory(Device::meta, ledger);
        const Buffer scratch = memory->allocate(cpu::kScratchBytes, Tag::workspace);
        meta::Stream stream;
        meta::Communicator ranks(rank, cut.pp * cut.cp * cut.tp);
        Generator::Options own = options;
        own.ranks = &ranks;
        Generator counted(own, *memory, stream);
        counted.feed(batch.tokens);
        EXPECT_EQ(ledger.rows(), real.ledger.rows()) << model.name << ", rank " << rank;
      });
    }
}

}  // namespace
}  // namespace lockstep::tests
