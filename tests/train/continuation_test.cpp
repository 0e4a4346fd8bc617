// Texts that are continued together have the tokens, and the logits to the bit, that each has alone.
#include "train/continuation.h"

#include <gtest/gtest.h>

#include <map>

#include "support/host_generator.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kPositions = 40;

// Of several lengths, around those of the runs in which prompts are read.
std::vector<Tokens> prompts_for(const ModelSpec& spec, int count) {
  std::vector<Tokens> all;
  for (int i = 0; i < count; ++i) {
    Tokens& prompt = all.emplace_back();
    for (int t = 0; t <= (7 * i + 3) % 23; ++t)
      prompt.push_back(static_cast<std::int32_t>((31 * i + 17 * t * t + 5) % spec.vocabulary));
  }
  return all;
}

Generator::Options options_for(const ModelSpec& spec, int texts, Precision precision = Precision::fp32) {
  return {.spec = spec, .positions = kPositions, .texts = texts, .prefill = 10, .precision = precision};
}

struct Answered {
  std::map<std::int64_t, Tokens> tokens;
  std::map<std::int64_t, Finish> why;
  std::vector<std::int64_t> order;  // in which they were finished
};

Answered answered_together(Generator& generator, const std::vector<Tokens>& prompts, const Continuation& how) {
  Answered all;
  std::size_t at = 0;
  continue_prompts(generator, how,
                   {.next = [&] { return at < prompts.size() ? std::optional(prompts[at++]) : std::nullopt; },
                    .give =
                        [&](std::int64_t number, std::int32_t token) {
                          all.tokens[number].push_back(token);
                          return true;
                        },
                    .finished =
                        [&](std::int64_t number, Finish why) {
                          EXPECT_TRUE(all.why.emplace(number, why).second) << number << " is finished twice";
                          all.order.push_back(number);
                        }});
  return all;
}

class EveryFamilyContinues : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(EveryFamilyContinues, TextsTogetherWithTheLogitsThatEachHasAlone) {
  const ModelSpec& spec = GetParam().spec;
  const auto run = trained({.spec = spec, .B = 1, .T = 8, .seed = 3});
  constexpr int kTexts = 5;  // passes for 2, 4 and 5
  HostGenerator together(options_for(spec, kTexts), 2), alone(options_for(spec, 1));
  for (HostGenerator* host : {&together, &alone}) host->copy(values_of(*run));
  const auto prompts = prompts_for(spec, kTexts);
  for (int text = 0; text < kTexts; ++text) together.generator->feed(prompts[text], text);
  std::vector<Tokens> texts = prompts;
  // All of them, then fewer, in any order of places.
  for (const std::vector<int>& some :
       std::vector<std::vector<int>>{{0, 1, 2, 3, 4}, {4, 0, 2}, {3, 1}, {2}, {1, 4, 3, 0}}) {
    std::vector<Generator::NextToken> next;
    for (const int text : some) {
      next.push_back({text, static_cast<std::int32_t>((13 * text + std::ssize(texts[text])) % spec.vocabulary)});
      texts[text].push_back(next.back().token);
    }
    const auto logits = together.generator->feed_each(next);
    const std::vector<double> got(logits.begin(), logits.end());
    for (std::size_t i = 0; i < some.size(); ++i) {
      alone.generator->clear();
      const auto expected = alone.feed(texts[some[i]]);
      const auto own = std::span(got).subspan(i * expected.size(), expected.size());
      ASSERT_TRUE(std::ranges::equal(own, expected)) << "text " << some[i] << " among " << some.size();
      EXPECT_EQ(together.generator->length(some[i]), std::ssize(texts[some[i]]));
    }
  }
}

TEST_P(EveryFamilyContinues, PromptsTogetherWithTheAnswersThatEachHasAlone) {
  const ModelSpec& spec = GetParam().spec;
  const auto run = trained({.spec = spec, .B = 1, .T = 8, .seed = 3});
  const auto prompts = prompts_for(spec, 9);
  HostGenerator alone(options_for(spec, 1));
  alone.copy(values_of(*run));
  Continuation how{.max_tokens = 25, .sampling = {.temperature = 1, .repetition = 1.2, .seed = 7}};
  for (const int end : {1, 3, 5}) how.ends.push_back(end);  // so that they end at many lengths
  for (const int texts : {2, 4}) {
    HostGenerator together(options_for(spec, texts));
    together.copy(values_of(*run));
    const Answered all = answered_together(*together.generator, prompts, how);
    ASSERT_EQ(all.why.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Tokens expected;
      const Finish why = continue_prompt(*alone.generator, prompts[i], how, [&](std::int32_t token) {
        expected.push_back(token);
        return true;
      });
      const auto number = static_cast<std::int64_t>(i);
      const auto got = all.tokens.find(number);
      EXPECT_EQ(got == all.tokens.end() ? Tokens{} : got->second, expected) << "prompt " << i << " of " << texts;
      EXPECT_EQ(all.why.at(number), why);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryFamilyContinues, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(GoingOnTogether, PutsTheNextPromptWhereOneIsFinished) {
  const ModelSpec spec = tiny_specs()[0].spec;
  const auto run = trained({.spec = spec, .B = 1, .T = 8, .seed = 3});
  HostGenerator host(options_for(spec, 2));
  host.copy(values_of(*run));
  // The first is long: its neighbours come and go beside it.
  std::size_t at = 0;
  std::vector<std::int64_t> order;
  std::map<std::int64_t, int> given;
  continue_prompts(*host.generator, {.max_tokens = 20, .sampling = {.temperature = 0}},
                   {.next = [&]() -> std::optional<Tokens> {
                      return at++ < 4 ? std::optional(Tokens{2, 4}) : std::nullopt;
                    },
                    .give = [&](std::int64_t number, std::int32_t) { return ++given[number] < 5 || number == 0; },
                    .finished = [&](std::int64_t number, Finish) { order.push_back(number); }});
  EXPECT_EQ(order, (std::vector<std::int64_t>{1, 2, 3, 0}));
  EXPECT_EQ(given, (std::map<std::int64_t, int>{{0, 20}, {1, 5}, {2, 5}, {3, 5}}));
}

TEST(GoingOnTogether, AllocatesNothingWhileReading) {
  HostGenerator host(options_for(tiny_specs()[0].spec, 4));
  const auto run = trained({.spec = tiny_specs()[0].spec, .B = 1, .T = 8, .seed = 3});
  host.copy(values_of(*run));
  const std::int64_t before = host.ledger.allocations();
  answered_together(*host.generator, prompts_for(tiny_specs()[0].spec, 6), {.max_tokens = 10});
  EXPECT_EQ(host.ledger.allocations(), before);
}

}  // namespace
}  // namespace lockstep::tests
