// Generation: reading tokens in any pieces gives the logits of the whole sequence, with weights and a cache alone, on
// one rank and on several that cut the model between them.
#include "train/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "comm/threads/run_ranks.h"
#include "kernels/elementwise.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

struct HostGenerator {
  explicit HostGenerator(const Generator::Options& options, int threads = 1)
      : memory(make_memory(Device::cpu, ledger)),
        stream(std::make_unique<cpu::Stream>(*memory, threads)),
        generator(std::make_unique<Generator>(options, *memory, *stream)) {}

  // The weights of a replica of the same model.
  void copy(const Replica& from) {
    const auto masters = from.tensors();
    const auto weights = generator->weights();
    ASSERT_EQ(masters.size(), weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_EQ(weights[i].tensor.name, masters[i].tensor.name);
      lockstep::cast({.y = weights[i].live, .x = masters[i].master}, *stream);
    }
  }
  std::vector<double> feed(std::span<const std::int32_t> tokens) {
    const auto logits = generator->feed(tokens);
    return {logits.begin(), logits.end()};
  }

  Ledger ledger;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<cpu::Stream> stream;
  std::unique_ptr<Generator> generator;
};

// A replica with weights that all matter: biases and norm weights start at 0 and 1, where a mistake could hide.
std::unique_ptr<HostRun> trained(const Replica::Options& options) {
  auto run = std::make_unique<HostRun>(options);
  run->replica->init_weights();
  std::vector<std::vector<double>> values;
  std::vector<ConstTensor> tensors;
  for (const auto& named : run->replica->tensors()) {
    values.push_back(to_doubles(named.master, *run->stream));
    if (named.tensor.shape.size() == 1)
      for (std::size_t i = 0; i < values.back().size(); ++i)
        values.back()[i] += 0.3 * std::sin(static_cast<double>(7 * i + named.tensor.name.size()));
    tensors.emplace_back(values.back().data(), DType::f64, Device::cpu, Shape{named.tensor.elements()});
  }
  run->replica->load(tensors);
  return run;
}

// Row t of the logits of a whole forward.
class Whole {
 public:
  Whole(Replica& replica, const TokenBatch& batch)
      : V_(replica.model().spec().vocabulary), logits_(batch.tokens.size() * V_) {
    replica.evaluate(batch.tokens, batch.targets, logits_);
  }
  double error(std::span<const double> got, std::int64_t t) const {
    double difference = 0, size = 0;
    for (std::int64_t i = 0; i < V_; ++i) {
      difference += std::pow(got[i] - logits_[t * V_ + i], 2);
      size += std::pow(logits_[t * V_ + i], 2);
    }
    return std::sqrt(difference / size);
  }

 private:
  std::int64_t V_;
  std::vector<double> logits_;
};

class EveryFamilyGenerates : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(EveryFamilyGenerates, TheLogitsOfTheWholeSequenceInWhateverPiecesItIsRead) {
  const std::int64_t T = 64;  // all the positions there are
  const Replica::Options o{.spec = GetParam().spec, .B = 1, .T = T, .precision = Precision::fp64, .seed = 3};
  const auto run = trained(o);
  const TokenBatch batch = random_batch(o, 1);
  const Whole whole(*run->replica, batch);
  const std::vector<std::vector<std::int64_t>> cuts{
      std::vector<std::int64_t>(T, 1), {T}, {1, T - 1}, {6, 5, 11, 1, 16, 25}, {T - 1, 1}};
  for (const std::int64_t chunk : {1, 5, 63, 64}) {
    HostGenerator host({.spec = o.spec, .positions = T, .chunk = chunk, .precision = Precision::fp64});
    host.copy(*run->replica);
    for (const auto& cut : cuts) {
      host.generator->clear();
      std::span<const std::int32_t> left = batch.tokens;
      for (const std::int64_t count : cut) {
        const auto logits = host.feed(left.first(count));
        left = left.subspan(count);
        const std::int64_t read = T - std::ssize(left);
        ASSERT_EQ(host.generator->length(), read);
        ASSERT_LT(whole.error(logits, read - 1), 1e-12) << "chunk " << chunk << ", " << read << " tokens";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryFamilyGenerates, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

// Ranks that cut the model between them.
using Values = std::map<std::string, std::vector<double>>;

Values values_of(const HostRun& run) {
  Values values;
  for (const auto& named : run.replica->tensors()) values[named.tensor.name] = to_doubles(named.master, *run.stream);
  return values;
}

// What of a whole fp64 tensor lives here.
void put(const StateTensor& here, const std::vector<double>& whole) {
  const bool apart = here.live.dims() == 2;
  const std::int64_t row = here.row > 0 ? here.row : here.live.elements();
  for (std::int64_t i = 0; i < here.live.elements() / row; ++i)
    std::copy_n(whole.begin() + here.begin + i * here.pitch, row,
                here.live.data<double>() + i * (apart ? here.live.stride(0) : row));
}

class CutModelsGenerate : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(CutModelsGenerate, TheLogitsOfOneRankAndTheSameBitsOnAll) {
  const std::int64_t T = 32;
  const ModelSpec& spec = GetParam().spec;
  const Replica::Options o{.spec = spec, .B = 1, .T = T, .precision = Precision::fp64, .seed = 3};
  const auto run = trained(o);
  const Values values = values_of(*run);
  const TokenBatch batch = random_batch(o, 1);
  const Whole whole(*run->replica, batch);
  int tried = 0;
  for (const int tp : {2, 3, 4}) {
    if (!heads_divide(spec.heads, spec.kv_heads, tp)) continue;
    ++tried;
    std::vector<std::vector<std::vector<double>>> all(tp);  // by rank, the logits after each piece
    run_ranks(tp, [&](std::unique_ptr<Communicator> ranks) {
      HostGenerator host(
          {.spec = spec, .positions = T, .chunk = 4, .precision = Precision::fp64, .ranks = ranks.get()});
      for (const StateTensor& here : host.generator->weights()) put(here, values.at(here.tensor.name));
      const std::int64_t K = std::max<std::int64_t>(1, spec.kv_heads / tp);
      EXPECT_EQ(host.ledger.rows().at({Tag::activation, "block.1"}).current, 2 * T * K * spec.head_width * 8);
      std::span<const std::int32_t> left = batch.tokens;
      for (const std::int64_t count : {1, 6, 5, 1, 19}) {
        all[ranks->rank()].push_back(host.feed(left.first(count)));
        left = left.subspan(count);
        const std::int64_t read = T - std::ssize(left);
        EXPECT_LT(whole.error(all[ranks->rank()].back(), read - 1), 1e-11) << tp << " ranks, " << read << " tokens";
      }
    });
    for (const auto& other : all) EXPECT_EQ(other, all[0]);
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(All, CutModelsGenerate, ::testing::ValuesIn(cut_specs()),
                         [](const auto& info) { return info.param.name; });

class EveryPrecisionGenerates : public ::testing::TestWithParam<Precision> {};

TEST_P(EveryPrecisionGenerates, TheLogitsOfTheWholeSequence) {
  const Replica::Options o{.spec = tiny_specs()[5].spec, .B = 1, .T = 30, .precision = GetParam(), .seed = 3};
  const auto run = trained(o);
  const TokenBatch batch = random_batch(o, 1);
  const Whole whole(*run->replica, batch);
  HostGenerator host({.spec = o.spec, .positions = 30, .chunk = 7, .precision = GetParam()});
  host.copy(*run->replica);
  const double tolerance = GetParam() == Precision::fp64 ? 1e-12 : GetParam() == Precision::fp32 ? 1e-5 : 0.1;
  EXPECT_LT(whole.error(host.feed(batch.tokens), 29), tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, EveryPrecisionGenerates,
                         ::testing::Values(Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// A replica of the first tiny spec and a generator with its weights.
struct Pair {
  explicit Pair(int threads = 1, std::int64_t positions = 40)
      : run(trained({.spec = tiny_specs()[0].spec, .B = 1, .T = 8, .seed = 3})),
        host({.spec = tiny_specs()[0].spec, .positions = positions, .chunk = 4}, threads) {
    host.copy(*run->replica);
  }
  std::unique_ptr<HostRun> run;
  HostGenerator host;
};

const std::vector<std::int32_t> kPrompt{3, 1, 4, 1, 5, 9, 2, 6, 5};

std::vector<std::int32_t> continued(Generator& generator, std::span<const std::int32_t> prompt,
                                    const Continuation& how) {
  std::vector<std::int32_t> tokens;
  go_on(generator, prompt, how, [&](std::int32_t token) {
    tokens.push_back(token);
    return true;
  });
  return tokens;
}

TEST(Generator, GivesTheSameBitsOnAnyNumberOfThreadsAndAgain) {
  Pair one(1), three(3);
  const auto first = one.host.feed(kPrompt);
  EXPECT_EQ(three.host.feed(kPrompt), first);
  one.host.feed(kPrompt);
  one.host.generator->clear();
  EXPECT_EQ(one.host.feed(kPrompt), first);
}

TEST(Generator, AllocatesNothingWhileReading) {
  Pair pair;
  const std::int64_t before = pair.host.ledger.allocations();
  pair.host.feed(kPrompt);
  for (int i = 0; i < 20; ++i) pair.host.feed({kPrompt.data(), 1});
  EXPECT_EQ(pair.host.ledger.allocations(), before);
}

TEST(Generator, HoldsWeightsAndACacheAndNothingOfTraining) {
  const ModelSpec spec = tiny_specs()[0].spec;
  HostGenerator host({.spec = spec, .positions = 48, .precision = Precision::fp64});
  for (const Tag tag : {Tag::gradient, Tag::optimizer}) EXPECT_EQ(host.ledger.peak(tag), 0);
  const auto rows = host.ledger.rows();
  EXPECT_EQ(rows.at({Tag::activation, "block.1"}).current, 2 * 48 * spec.kv_heads * spec.head_width * 8);
  const HostRun run({.spec = spec, .B = 1, .T = 1, .precision = Precision::fp64});
  EXPECT_EQ(host.ledger.current(Tag::parameter), run.ledger.current(Tag::parameter));
}

TEST(Generator, TakesOnMetaWhatItTakesOnTheCpu) {
  for (const NamedSpec& named : tiny_specs()) {
    const Generator::Options o{.spec = named.spec, .positions = 40, .chunk = 4, .precision = Precision::bf16};
    HostGenerator real(o);
    for (const StateTensor& weight : real.generator->weights())
      lockstep::fill({.y = weight.live, .value = 0}, *real.stream);
    real.feed(kPrompt);
    Ledger ledger;
    const auto memory = make_memory(Device::meta, ledger);
    const Buffer scratch = memory->allocate(cpu::kScratchBytes, Tag::workspace);
    meta::Stream stream;
    Generator counted(o, *memory, stream);
    counted.feed(kPrompt);
    EXPECT_EQ(ledger.rows(), real.ledger.rows()) << named.name;
  }
}

TEST(Generator, LoadsTheWeightsOfACheckpointInAnyPrecision) {
  std::string folder = ::testing::TempDir() + "lockstep-generator-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  Pair pair;
  save_checkpoint({.path = folder}, {.step = 7, .run_file = "x"}, pair.run->replica->state());
  const auto checkpoint = open_newest_whole(folder);
  ASSERT_TRUE(checkpoint);
  const auto expected = pair.host.feed(kPrompt);
  for (const Precision precision : {Precision::fp32, Precision::fp64}) {
    HostGenerator host({.spec = tiny_specs()[0].spec, .positions = 40, .chunk = 4, .precision = precision});
    host.generator->load(*checkpoint);
    const auto logits = host.feed(kPrompt);
    if (precision == Precision::fp32) {
      EXPECT_EQ(logits, expected);
    }
    for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-4);
  }
  std::filesystem::remove_all(folder);
}

// Columns of the second products, rows of the first, padded where they do not divide, and three parts of GPT-2's.
TEST(Generator, LoadsItsPartOfACheckpoint) {
  for (const auto& [which, tp] : {std::pair{0, 3}, {6, 2}, {6, 3}}) {
    std::string folder = ::testing::TempDir() + "lockstep-generator-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    const ModelSpec spec = tiny_specs()[which].spec;
    const auto run = trained({.spec = spec, .B = 1, .T = 8, .precision = Precision::fp64, .seed = 3});
    save_checkpoint({.path = folder}, {.step = 7, .run_file = "x"}, run->replica->state());
    const auto checkpoint = open_newest_whole(folder);
    ASSERT_TRUE(checkpoint);
    HostGenerator one({.spec = spec, .positions = 40, .precision = Precision::fp64});
    one.copy(*run->replica);
    const auto expected = one.feed(kPrompt);
    run_ranks(tp, [&](std::unique_ptr<Communicator> ranks) {
      HostGenerator host({.spec = spec, .positions = 40, .precision = Precision::fp64, .ranks = ranks.get()});
      host.generator->load(*checkpoint);
      const auto logits = host.feed(kPrompt);
      for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-11) << which;
    });
    std::filesystem::remove_all(folder);
  }
}

TEST(Generator, LoadsTheWeightsOfAHuggingFaceFolder) {
  for (const char* name : {"gpt2-tiny", "llama-tied-scaled", "qwen2-tiny"}) {
    const HfFolder folder(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name);
    const Replica::Options o{.spec = folder.spec(), .B = 1, .T = 12, .precision = Precision::fp64};
    HostRun run(o);
    std::vector<LogicalTensor> names;
    for (const auto& named : run.replica->tensors()) names.push_back(named.tensor);
    run.replica->load(folder.find(names));
    const TokenBatch batch = random_batch(o, 1);
    const Whole whole(*run.replica, batch);
    HostGenerator host({.spec = folder.spec(), .positions = 12, .chunk = 5, .precision = Precision::fp64});
    host.generator->load(folder);
    EXPECT_LT(whole.error(host.feed(batch.tokens), 11), 1e-12) << name;
  }
}

TEST(Generator, LoadsItsPartOfAHuggingFaceFolder) {
  for (const char* name : {"gpt2-tiny", "llama-tied-scaled", "qwen2-tiny"}) {
    const HfFolder folder(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name);
    const TokenBatch batch = random_batch({.spec = folder.spec(), .B = 1, .T = 12}, 1);
    HostGenerator one({.spec = folder.spec(), .positions = 12, .chunk = 5, .precision = Precision::fp64});
    one.generator->load(folder);
    const auto expected = one.feed(batch.tokens);
    const double largest = std::abs(*std::ranges::max_element(expected, {}, [](double x) { return std::abs(x); }));
    run_ranks(2, [&](std::unique_ptr<Communicator> ranks) {
      HostGenerator host(
          {.spec = folder.spec(), .positions = 12, .chunk = 5, .precision = Precision::fp64, .ranks = ranks.get()});
      host.generator->load(folder);
      const auto logits = host.feed(batch.tokens);
      for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-12 * largest) << name;
    });
  }
}

TEST(Generator, RefusesATokenThatTheModelDoesNotHave) {
  Pair pair;
  for (const std::int32_t bad : {37, -1}) {
    const std::vector<std::int32_t> tokens{1, bad};
    try {
      pair.host.feed(tokens);
      ADD_FAILURE() << bad;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("no token id {}; the model's vocabulary has ids 0 to 36", bad)));
    }
  }
  EXPECT_EQ(pair.host.generator->length(), 0);
}

TEST(GoingOn, GreedilyIsReproducibleAndTakesTheLikeliest) {
  Pair pair;
  Generator& generator = *pair.host.generator;
  const Continuation greedy{.max_tokens = 12, .sampling = {.temperature = 0}};
  const auto tokens = continued(generator, kPrompt, greedy);
  ASSERT_EQ(tokens.size(), 12u);
  generator.clear();
  EXPECT_EQ(continued(generator, kPrompt, greedy), tokens);
  generator.clear();
  auto logits = generator.feed(kPrompt);
  for (const std::int32_t token : tokens) {
    EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin());
    logits = generator.feed({&token, 1});
  }
}

TEST(GoingOn, TheSameSeedGivesTheSameTextAndAnotherDoesNot) {
  Pair pair;
  Generator& generator = *pair.host.generator;
  const auto with = [&](std::uint64_t seed) {
    generator.clear();
    return continued(generator, kPrompt, {.max_tokens = 25, .sampling = {.seed = seed}});
  };
  const auto first = with(1);
  EXPECT_EQ(with(1), first);
  EXPECT_NE(with(2), first);
}

TEST(GoingOn, TakesWhatIsPickedForTheTokensPlaceInTheText) {
  Pair pair;
  Generator& generator = *pair.host.generator;
  const Continuation how{.max_tokens = 15, .sampling = {.temperature = 1.5, .top_k = 9, .seed = 6}};
  const auto tokens = continued(generator, kPrompt, how);
  generator.clear();
  auto logits = generator.feed(kPrompt);
  std::vector<Candidate> room;
  std::int64_t place = std::ssize(kPrompt);
  for (const std::int32_t token : tokens) {
    EXPECT_EQ(token, pick(logits, how.sampling, place++, room));
    logits = generator.feed({&token, 1});
  }
}

TEST(GoingOn, LaterIsGoingOnAtOnce) {
  Pair pair;
  Generator& generator = *pair.host.generator;
  const auto whole = continued(generator, kPrompt, {.max_tokens = 20});
  generator.clear();
  auto parts = continued(generator, kPrompt, {.max_tokens = 8});
  const std::int32_t last = parts.back();
  for (const std::int32_t token : continued(generator, {&last, 1}, {.max_tokens = 12})) parts.push_back(token);
  EXPECT_EQ(parts, whole);
}

TEST(GoingOn, SaysWhyItEnded) {
  Pair pair(1, 16);
  Generator& generator = *pair.host.generator;
  std::vector<std::int32_t> tokens;
  const auto give = [&](std::int32_t token) {
    tokens.push_back(token);
    return true;
  };
  const auto ended = [&](const Continuation& how, const std::function<bool(std::int32_t)>& to) {
    generator.clear();
    tokens.clear();
    return go_on(generator, kPrompt, how, to);
  };
  EXPECT_EQ(ended({.max_tokens = 8}, give), Finish::enough);  // the last needs no position: 9 + 8 - 1 = 16
  EXPECT_EQ(tokens.size(), 8u);
  EXPECT_EQ(ended({.max_tokens = 9}, give), Finish::no_positions);
  EXPECT_EQ(tokens.size(), 8u);
  const auto all = tokens;
  EXPECT_EQ(ended({.max_tokens = 9, .end = all[5]}, give), Finish::end_of_text);
  EXPECT_EQ(tokens, std::vector(all.begin(), std::ranges::find(all, all[5])));  // it is not given
  EXPECT_EQ(ended({.max_tokens = 9},
                  [&](std::int32_t token) {
                    give(token);
                    return tokens.size() < 3;
                  }),
            Finish::stopped);
  EXPECT_EQ(tokens.size(), 3u);
}

}  // namespace
}  // namespace lockstep::tests
