// Generation on ranks that have the model between them, in depth, across every layer, and both: the logits of one rank
// on all of them, each with its part of the weights and of the cache.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/integers.h"
#include "checkpoint/checkpoint_folder.h"
#include "comm/meta/communicator.h"
#include "support/host_generator.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kPrefill = 4;
const std::vector<std::int64_t> kPieces{1, 6, 5, 1, 19};  // of them: less than a run, a whole one, several

Generator::Options short_prefill_options(const ModelSpec& spec, Precision precision) {
  return {.spec = spec, .positions = kTextTokens, .prefill = kPrefill, .precision = precision};
}

Logits read_in_pieces(HostGenerator& host, std::span<const std::int32_t> tokens, bool late = false) {
  Logits all;
  for (const std::int64_t count : kPieces) {
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    all.push_back(host.feed(tokens.first(count)));
    tokens = tokens.subspan(count);
  }
  return all;
}

void on_ranks(Generator::Options options, int pp, int tp, const std::function<void(int rank, HostGenerator&)>& body) {
  options.pp = pp;
  tests::on_ranks(options, tp, body);
}

// Weights and tokens for a model.
struct Text {
  explicit Text(const ModelSpec& spec)
      : options{.spec = spec, .B = 1, .T = kTextTokens, .precision = Precision::fp64, .seed = 3},
        run(trained(options)),
        values(values_of(*run)),
        batch(random_batch(options, 1)) {}

  // By rank.
  std::vector<Logits> read_on(Precision precision, int pp, int tp, int late = -1) const {
    std::vector<Logits> all(static_cast<std::size_t>(pp * tp));
    on_ranks(short_prefill_options(options.spec, precision), pp, tp, [&](int rank, HostGenerator& host) {
      host.copy(values);
      all[static_cast<std::size_t>(rank)] = read_in_pieces(host, batch.tokens, rank == late);
    });
    return all;
  }

  Replica::Options options;
  std::unique_ptr<HostRun> run;
  TensorValues values;
  TokenBatch batch;
};

class CutModelsGenerate : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(CutModelsGenerate, TheLogitsOfOneRankAndTheSameBitsOnAll) {
  const ModelSpec& spec = GetParam().spec;
  const Text text(spec);
  const Whole whole(*text.run->replica, text.batch);
  int tried = 0;
  for (const int tp : {2, 3, 4}) {
    if (!heads_divide(spec.heads, spec.kv_heads, tp)) continue;
    ++tried;
    for (const int pp : {1, 2, 3}) {
      const std::vector<Logits> all = text.read_on(Precision::fp64, pp, tp);
      for (const Logits& other : all) EXPECT_EQ(other, all[0]);
      std::int64_t read = 0;
      for (std::size_t i = 0; i < kPieces.size(); ++i) {
        read += kPieces[i];
        EXPECT_LT(whole.error(all[0][i], read - 1), 1e-11) << pp << " x " << tp << " ranks, " << read << " tokens";
      }
    }
    on_ranks(short_prefill_options(spec, Precision::fp64), 1, tp, [&](int, HostGenerator& host) {
      const std::int64_t K = std::max<std::int64_t>(1, spec.kv_heads / tp);
      EXPECT_EQ(host.ledger.rows().at({Tag::activation, "block.1"}).current, 2 * kTextTokens * K * spec.head_width * 8);
    });
  }
  EXPECT_GT(tried, 0);
}

// Nothing about depth changes a sum, however the layers are cut.
TEST_P(CutModelsGenerate, InStagesTheBitsOfOneStage) {
  const ModelSpec& spec = GetParam().spec;
  const Text text(spec);
  const int tp = heads_divide(spec.heads, spec.kv_heads, 2) ? 2 : 3;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Logits one = text.read_on(precision, 1, tp)[0];
    for (const int pp : {2, 3})
      for (const Logits& other : text.read_on(precision, pp, tp)) EXPECT_EQ(other, one) << pp << " x " << tp;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CutModelsGenerate, ::testing::ValuesIn(cut_specs()),
                         [](const auto& info) { return info.param.name; });

// The tiny models with layers for four stages, and up to seven of one unit each; with a head of their own and without.
std::vector<NamedSpec> five_layer_specs() {
  std::vector<NamedSpec> all;
  for (NamedSpec model : tiny_specs())
    for (const bool tied : {false, true}) {
      NamedSpec deep = model;
      deep.name += tied ? "_tied_head" : "_own_head";
      deep.spec.layers = 5;
      deep.spec.tied = tied;
      all.push_back(deep);
    }
  return all;
}
constexpr int kStages[] = {1, 2, 3, 4, 7};

class StagesGenerate : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(StagesGenerate, TheBitsOfOneRank) {
  const Text text(GetParam().spec);
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    HostGenerator one(short_prefill_options(GetParam().spec, precision));
    one.copy(text.values);
    const Logits expected = read_in_pieces(one, text.batch.tokens);
    for (const int pp : kStages)
      for (const Logits& got : text.read_on(precision, pp, 1)) EXPECT_EQ(got, expected) << pp << " stages";
  }
}

using Bytes = std::map<std::string, std::int64_t>;  // by unit

Bytes held(const HostGenerator& host, Tag tag) {
  Bytes bytes;
  for (const auto& [row, count] : host.ledger.rows())
    if (row.first == tag && count.current > 0) bytes[row.second] = count.current;
  return bytes;
}

// What ranks hold, by rank: weights, and activations, of which those of a unit are its cache.
struct HeldByRanks {
  std::vector<Bytes> weights, activations;
  HeldByRanks(const Generator::Options& options, int pp) : weights(pp * options.cp), activations(pp * options.cp) {
    on_ranks(options, pp, 1, [&](int rank, HostGenerator& host) {
      weights[rank] = held(host, Tag::parameter);
      activations[rank] = held(host, Tag::activation);
    });
  }
};

std::int64_t table_bytes(const ModelSpec& spec, DType dtype) {
  return round_up(spec.vocabulary * spec.width, kParameterAlignment) * size_of(dtype);
}

TEST_P(StagesGenerate, WithTheWeightsAndCachesOfOneRankBetweenThem) {
  const ModelSpec& spec = GetParam().spec;
  const Generator::Options options = short_prefill_options(spec, Precision::fp32);
  const HeldByRanks one(options, 1);
  for (const int pp : kStages) {
    HeldByRanks stages(options, pp);
    if (pp > 1 && spec.tied) {
      EXPECT_EQ(stages.weights[pp - 1].at("embedding"), table_bytes(spec, DType::f32));
      stages.weights[pp - 1].erase("embedding");
    }
    Bytes weights, caches;
    for (int stage = 0; stage < pp; ++stage) {
      for (const auto& row : stages.weights[stage]) EXPECT_TRUE(weights.insert(row).second) << row.first;
      EXPECT_LE(stages.activations[stage].at(""), one.activations[0].at("")) << pp << " stages";
      for (const auto& row : stages.activations[stage]) EXPECT_TRUE(row.first.empty() || caches.insert(row).second);
    }
    EXPECT_EQ(weights, one.weights[0]) << pp << " stages";
    caches[""] = one.activations[0].at("");
    EXPECT_EQ(caches, one.activations[0]) << pp << " stages";
    if (pp < spec.layers + 2) continue;
    // The embedding alone has nothing but what it hands on, for one token and for a run of a prompt; and logits are
    // everybody's.
    const auto bytes = [](std::int64_t elements) { return round_up(elements * 4, kAlignment); };
    EXPECT_EQ(stages.activations[0].at(""), bytes(spec.width) + bytes(kPrefill * spec.width) + bytes(spec.vocabulary));
  }
}

// The most bytes of a stage, if units from `first` on are cut into so many as well as can be.
std::int64_t least_most(std::span<const std::int64_t> units, std::size_t first, int stages) {
  std::int64_t best = std::numeric_limits<std::int64_t>::max(), run = 0;
  for (std::size_t end = first + 1; end <= units.size(); ++end) {
    run += units[end - 1];
    if (stages == 1 && end < units.size()) continue;
    if (stages > 1 && end == units.size()) break;
    best = std::min(best, stages == 1 ? run : std::max(run, least_most(units, end, stages - 1)));
  }
  return best;
}

// Of weights and caches, whole ones and some ranks' parts of them.
void expect_least_most(ModelSpec spec, std::int64_t cp) {
  for (const std::int64_t vocabulary : {37, 150, 300, 600}) {  // from a table of less than a layer to one of several
    spec.vocabulary = vocabulary;
    Generator::Options options = short_prefill_options(spec, Precision::fp32);
    options.positions = 64;
    options.cp = cp;
    const HeldByRanks one(options, 1);
    std::vector<std::int64_t> units{one.weights[0].at("embedding")};
    for (int layer = 0; layer < spec.layers; ++layer) {
      const std::string name = "block." + std::to_string(layer);
      units.push_back(one.weights[0].at(name) + one.activations[0].at(name));
    }
    units.push_back(one.weights[0].at("head") + (spec.tied ? table_bytes(spec, DType::f32) : 0));
    for (const int pp : {2, 3, 4, 7}) {
      const HeldByRanks stages(options, pp);
      std::int64_t most = 0;
      for (std::size_t rank = 0; rank < stages.weights.size(); ++rank) {
        std::int64_t sum = 0;
        for (const auto& [unit, bytes] : stages.weights[rank]) sum += bytes;
        for (const auto& [unit, bytes] : stages.activations[rank]) sum += unit.empty() ? 0 : bytes;
        most = std::max(most, sum);
      }
      EXPECT_EQ(most, least_most(units, 0, pp)) << pp << " x " << cp << " ranks, " << vocabulary << " tokens";
    }
  }
}

TEST_P(StagesGenerate, WithAsFewBytesAsCanBeOnTheStageThatHasMost) {
  expect_least_most(GetParam().spec, 1);
  expect_least_most(GetParam().spec, 3);
}

INSTANTIATE_TEST_SUITE_P(All, StagesGenerate, ::testing::ValuesIn(five_layer_specs()),
                         [](const auto& info) { return info.param.name; });

// What a stage has sent stays as it is until the next one has taken it, however late that comes.
TEST(GeneratorOnRanks, GivesTheBitsOfOneWhicheverOfThemIsLate) {
  for (const int which : {0, 13}) {  // Llama with a head of its own, GPT-2 without
    const Text text(five_layer_specs()[which].spec);
    const Logits expected = text.read_on(Precision::fp32, 1, 1)[0];
    for (int late = 0; late < 3; ++late)
      for (const Logits& got : text.read_on(Precision::fp32, 3, 1, late)) EXPECT_EQ(got, expected) << late;
  }
}

TEST(GeneratorOnRanks, TakesOnMetaWhatItTakesOnTheCpuAndNothingWhileReading) {
  for (const NamedSpec& model : five_layer_specs())
    for (const auto& [pp, tp] : {std::pair{3, 1}, {7, 1}, {2, 3}}) {
      const Text text(model.spec);
      const Generator::Options options = short_prefill_options(model.spec, Precision::bf16);
      on_ranks(options, pp, tp, [&, pp = pp, tp = tp](int rank, HostGenerator& real) {
        real.copy(text.values);
        const std::int64_t before = real.ledger.allocations();
        read_in_pieces(real, text.batch.tokens);
        EXPECT_EQ(real.ledger.allocations(), before);
        Ledger ledger;
        const auto memory = make_memory(Device::meta, ledger);
        const Buffer scratch = memory->allocate(cpu::kScratchBytes, Tag::workspace);
        meta::Stream stream;
        meta::Communicator ranks(rank, pp * tp);
        Generator::Options own = options;
        own.ranks = &ranks;
        own.pp = pp;
        Generator counted(own, *memory, stream);
        counted.feed(text.batch.tokens);
        EXPECT_EQ(ledger.rows(), real.ledger.rows()) << model.name << ", rank " << rank << " of " << pp << " x " << tp;
      });
    }
}

// Columns of the second products, rows of the first, padded where they do not divide, and three parts of GPT-2's; units
// of a stage, and a table that two of them want.
TEST(GeneratorOnRanks, LoadsItsPartOfACheckpoint) {
  struct Cut {
    int which, pp, tp;
  };
  for (const auto& [which, pp, tp] :
       std::vector<Cut>{{0, 1, 3}, {6, 1, 2}, {6, 1, 3}, {0, 2, 1}, {1, 4, 1}, {6, 3, 1}, {6, 2, 2}}) {
    std::string folder = ::testing::TempDir() + "lockstep-generator-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    const Text text(tiny_specs()[which].spec);
    save_checkpoint({.path = folder}, {.step = 7, .run_file = "x"}, text.run->replica->state());
    const auto checkpoint = open_newest_whole(folder);
    ASSERT_TRUE(checkpoint);
    const Generator::Options options = short_prefill_options(text.options.spec, Precision::fp64);
    HostGenerator one(options);
    one.copy(text.values);
    const auto expected = one.feed(text.batch.tokens);
    on_ranks(options, pp, tp, [&, which = which, tp = tp](int, HostGenerator& host) {
      host.generator->load(*checkpoint);
      const auto logits = host.feed(text.batch.tokens);
      if (tp == 1) {
        EXPECT_EQ(logits, expected) << which;
      }
      for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-11) << which;
    });
    std::filesystem::remove_all(folder);
  }
}

TEST(GeneratorOnRanks, LoadsItsPartOfAHuggingFaceFolder) {
  for (const char* name : {"gpt2-tiny", "llama-tied-scaled", "qwen2-tiny"}) {
    const HfFolder folder(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name);
    const Generator::Options options = short_prefill_options(folder.spec(), Precision::fp64);
    const TokenBatch batch = random_batch({.spec = folder.spec(), .B = 1, .T = kTextTokens}, 1);
    HostGenerator one(options);
    one.generator->load(folder);
    const auto expected = one.feed(batch.tokens);
    const double largest = std::abs(*std::ranges::max_element(expected, {}, [](double x) { return std::abs(x); }));
    for (const auto& [pp, tp] : {std::pair{1, 2}, {2, 1}, {4, 1}, {3, 2}})
      on_ranks(options, pp, tp, [&, tp = tp](int, HostGenerator& host) {
        host.generator->load(folder);
        const auto logits = host.feed(batch.tokens);
        if (tp == 1) {
          EXPECT_EQ(logits, expected) << name;
        }
        for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-12 * largest) << name;
      });
  }
}

}  // namespace
}  // namespace lockstep::tests
