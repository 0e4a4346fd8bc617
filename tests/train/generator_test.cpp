// Generation: reading tokens in any pieces gives the logits of the whole sequence, with weights and a cache alone.
#include "train/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "kernels/elementwise.h"
#include "support/host_generator.h"
#include "support/tiny_specs.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

class EveryFamilyGenerates : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(EveryFamilyGenerates, TheLogitsOfTheWholeSequenceInWhateverPiecesItIsRead) {
  const std::int64_t T = 64;  // all the positions there are
  const Replica::Options o{.spec = GetParam().spec, .B = 1, .T = T, .precision = Precision::fp64, .seed = 3};
  const auto run = trained(o);
  const TokenBatch batch = random_batch(o, 1);
  const Whole whole(*run->replica, batch);
  const std::vector<std::vector<std::int64_t>> cuts{
      std::vector<std::int64_t>(T, 1), {T}, {1, T - 1}, {6, 5, 11, 1, 16, 25}, {T - 1, 1}};
  for (const std::int64_t prefill : {1, 5, 63, 64}) {
    HostGenerator host({.spec = o.spec, .positions = T, .prefill = prefill, .precision = Precision::fp64});
    host.copy(values_of(*run));
    for (const auto& cut : cuts) {
      host.generator->clear();
      std::span<const std::int32_t> left = batch.tokens;
      for (const std::int64_t count : cut) {
        const auto logits = host.feed(left.first(count));
        left = left.subspan(count);
        const std::int64_t read = T - std::ssize(left);
        ASSERT_EQ(host.generator->length(), read);
        ASSERT_LT(whole.error(logits, read - 1), 1e-12) << "runs of " << prefill << ", " << read << " tokens";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryFamilyGenerates, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

class EveryPrecisionGenerates : public ::testing::TestWithParam<Precision> {};

TEST_P(EveryPrecisionGenerates, TheLogitsOfTheWholeSequence) {
  const Replica::Options o{.spec = tiny_specs()[5].spec, .B = 1, .T = 30, .precision = GetParam(), .seed = 3};
  const auto run = trained(o);
  const TokenBatch batch = random_batch(o, 1);
  const Whole whole(*run->replica, batch);
  HostGenerator host({.spec = o.spec, .positions = 30, .prefill = 7, .precision = GetParam()});
  host.copy(values_of(*run));
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
        host({.spec = tiny_specs()[0].spec, .positions = positions, .prefill = 4}, threads) {
    host.copy(values_of(*run));
  }
  std::unique_ptr<HostRun> run;
  HostGenerator host;
};

const std::vector<std::int32_t> kPrompt{3, 1, 4, 1, 5, 9, 2, 6, 5};

std::vector<std::int32_t> continued(Generator& generator, std::span<const std::int32_t> prompt,
                                    const Continuation& how) {
  std::vector<std::int32_t> tokens;
  continue_prompt(generator, prompt, how, [&](std::int32_t token) {
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
    const Generator::Options o{.spec = named.spec, .positions = 40, .prefill = 4, .precision = Precision::bf16};
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
    HostGenerator host({.spec = tiny_specs()[0].spec, .positions = 40, .prefill = 4, .precision = precision});
    host.generator->load(*checkpoint);
    const auto logits = host.feed(kPrompt);
    if (precision == Precision::fp32) {
      EXPECT_EQ(logits, expected);
    }
    for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-4);
  }
  std::filesystem::remove_all(folder);
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
    HostGenerator host({.spec = folder.spec(), .positions = 12, .prefill = 5, .precision = Precision::fp64});
    host.generator->load(folder);
    EXPECT_LT(whole.error(host.feed(batch.tokens), 11), 1e-12) << name;
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
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("no token id {}; use ids from 0 to 36", bad)));
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
  std::vector<std::int32_t> text = kPrompt;
  text.insert(text.end(), parts.begin(), parts.end());
  EXPECT_EQ(generator.length(), std::ssize(text) - 1);  // all but the last were read, and are not read again
  for (const std::int32_t token : continued(generator, text, {.max_tokens = 12})) parts.push_back(token);
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
    return continue_prompt(generator, kPrompt, how, to);
  };
  EXPECT_EQ(ended({.max_tokens = 8}, give), Finish::enough);  // the last needs no position: 9 + 8 - 1 = 16
  EXPECT_EQ(tokens.size(), 8u);
  EXPECT_EQ(ended({.max_tokens = 9}, give), Finish::no_positions);
  EXPECT_EQ(tokens.size(), 8u);
  const auto all = tokens;
  EXPECT_EQ(ended({.max_tokens = 9, .ends = {-1, all[5]}}, give), Finish::end_of_text);
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
