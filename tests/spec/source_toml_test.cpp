// The sources of a mixture in a run file: every key acts, what is written reads back, and what does nothing is refused.
#include <gmock/gmock.h>

#include "run_toml_cases.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const std::string kMixed = R"([model]
preset = "llama-1m"
[data]
eval_share = 0.25
weigh_by = "documents"
[data.source.web]
tokens = "../web.bin"
token_type = "u16"
weight = 0.75
epochs = 1.5
[data.source.books]
text = ["b", "c"]
weight = "1, 0.5@100"
eval_share = 0
)";

TEST(SourceToml, EveryKeyActs) {
  const RunSpec run = parse(kMixed);
  ASSERT_EQ(run.data.sources.size(), 2u);
  const SourceSpec books{.name = "books",
                         .text = {"/a/b", "/a/c"},
                         .tokens = "",
                         .weight = *WeightSteps::parse("1, 0.5@100"),
                         .eval_share = 0};
  const SourceSpec web{.name = "web",
                       .text = {},
                       .tokens = "/web.bin",
                       .token_type = TokenType::u16,
                       .weight = *WeightSteps::parse("0.75"),
                       .epochs = 1.5,
                       .eval_share = 0.25};
  EXPECT_EQ(run.data.sources[0], books) << "by their names";
  EXPECT_EQ(run.data.sources[1], web);
  EXPECT_EQ(run.data.weigh_by, WeighBy::documents);
  EXPECT_EQ(parse(without(kMixed, "weigh_by = \"documents\"")).data.weigh_by, WeighBy::tokens);
  EXPECT_EQ(parse(kMixed, {"data.source.web.weight=2"}).data.sources[1].weight.text(), "2");
  EXPECT_EQ(parse(kMixed, {"data.source.web.weight=2, 3@5"}).data.sources[1].weight.text(), "2, 3@5");
  const RunSpec raw = parse(without(with("data", "tokens = \"x\"\ntoken_type = \"u32\""), "example = true"));
  EXPECT_EQ(raw.data.token_type, TokenType::u32);
}

TEST(SourceToml, WritingAndReadingAreInverse) {
  for (const RunSpec& run : {parse(kMixed), parse(kMixed, {"data.source.web.weight=1, 0@7, 1e-05@9"}),
                             parse(without(with("data", "tokens = \"x\"\ntoken_type = \"u16\""), "example = true"))})
    EXPECT_EQ(parse_run_toml(to_toml(run), "elsewhere/run.toml", "/elsewhere"), run) << to_toml(run);
}

TEST(SourceToml, AChoiceOnTheCommandLineReplacesTheMixture) {
  const RunSpec run = parse(kMixed, {"data.tokens=/x"});
  EXPECT_EQ(run.data.tokens, "/x");
  EXPECT_TRUE(run.data.sources.empty());
}

TEST(SourceToml, WhatSaysNothingIsRefused) {
  const auto said = [](const std::string& from, const std::string& to) {
    std::string text = kMixed;
    const std::size_t at = text.find(from);
    return refusal(text.replace(at, from.size(), to));
  };
  EXPECT_THAT(said("token_type = \"u16\"", "token_type = \"u8\""), HasSubstr("one of \"u16\", \"u32\""));
  EXPECT_THAT(said("weight = 0.75", "weight = -1"), HasSubstr("'weight' in [data.source.web]"));
  EXPECT_THAT(said("\"1, 0.5@100\"", "\"1, 0.5\""), HasSubstr("write a weight of at least 0"));
  EXPECT_THAT(said("epochs = 1.5", "epoch = 1.5"), HasSubstr("the nearest known one is 'epochs'"));
  EXPECT_THAT(said("text = [\"b\", \"c\"]", "token_type = \"u16\""), HasSubstr("has neither text nor tokens"));
  EXPECT_THAT(said("text = [\"b\", \"c\"]", "text = \"b\"\ntoken_type = \"u16\""),
              HasSubstr("token_type does nothing without tokens"));
  EXPECT_THAT(said("text = [\"b\", \"c\"]", "text = \"b\"\ntokens = \"c\""), HasSubstr("has both text and tokens"));
  EXPECT_THAT(said("[data]\n", "[data]\ntokens = \"x\"\n"), HasSubstr("names both tokens and source"));
  EXPECT_THAT(said("[data]\n", "[data]\ntoken_type = \"u16\"\n"), HasSubstr("token_type does nothing without tokens"));
  EXPECT_THAT(said("[data.source.web]", "[data.source.\"we b\"]"), HasSubstr("a source is called 'we b'"));
  EXPECT_THAT(refusal(with("data", "weigh_by = \"tokens\"")), HasSubstr("does nothing without a mixture"));
  EXPECT_THAT(refusal(with("data", "source = 3")), HasSubstr("a table"));
  std::string zero = kMixed;
  zero.replace(zero.find("0.75"), 4, "\"1, 0@100\"");
  zero.replace(zero.find("0.5@100"), 7, "0@50");
  EXPECT_THAT(refusal(zero), HasSubstr("no source has a weight above 0 from sample 100 on"));
  std::string evaluated = kMixed;
  evaluated.replace(evaluated.find("eval_share = 0.25"), 17, "eval_share = 0");
  EXPECT_THAT(refusal(evaluated + "[train]\neval_every = 2\n"), HasSubstr("eval_every is 2"));
}

}  // namespace
}  // namespace lockstep
