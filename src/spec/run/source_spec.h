// The sources of a mixture: where each has its tokens, and how much of the training it gets (docs/data.md, "Mixtures").
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What a file of token ids without a header holds. `named`: the file says itself what it is.
enum class TokenType { named, u16, u32 };
inline constexpr std::array kTokenTypes{TokenType::named, TokenType::u16, TokenType::u32};
constexpr std::string_view name_of(TokenType type) {
  return type == TokenType::u16 ? "u16" : type == TokenType::u32 ? "u32" : "named";
}

// What weights are shares of. Samples have one length, so a share of tokens is one of samples; a share of documents is
// made one of tokens by the mean length of the source's documents.
enum class WeighBy { tokens, documents };
inline constexpr std::array kWeighBy{WeighBy::tokens, WeighBy::documents};
constexpr std::string_view name_of(WeighBy by) { return by == WeighBy::tokens ? "tokens" : "documents"; }

// A weight over the samples consumed: "0.7, 0.3@10000" is 0.7 up to sample 10000 and 0.3 from it on.
struct WeightSteps {
  struct Step {
    std::int64_t from = 0;  // the first is from 0, each later one from further on
    double weight = 1;      // not negative
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps = {Step{}};

  double at(std::int64_t sample) const;
  static constexpr std::string_view kRemedy =
      "write a weight of at least 0, or several with the samples they begin at, as in \"0.7, 0.3@10000\"";
  static std::optional<WeightSteps> parse(std::string_view text);
  std::string text() const;
  bool operator==(const WeightSteps&) const = default;
};

// Exactly one of text and tokens.
struct SourceSpec {
  std::string name;
  std::vector<std::string> text;  // files and folders, absolute; of data.tokenizer, or bytes
  std::string tokens;             // a token file of this program or of another (data/open_tokens.h), absolute
  TokenType token_type = TokenType::named;
  WeightSteps weight;
  double epochs = 0;         // passes over it at most; 0: as many as come
  double eval_share = 0.05;  // the last share of its samples is for evaluation
  bool operator==(const SourceSpec&) const = default;
};

inline constexpr std::size_t kMostSources = 256;

}  // namespace lockstep
