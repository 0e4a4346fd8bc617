// Scores of texts by a model: the loss of a document with sliding windows, and multiple choice as lm-evaluation-harness
// does it.
//
// Sliding windows: a window has up to T tokens and begins S after the one before; of each, only the targets that no
// window before has had count. So each target but those of the first window is predicted from at least T - S tokens. A
// document is predicted from `start`, a token before its first.
//
// Multiple choice: the context and each choice are one text, tokenized together; blanks at the context's end belong to
// the choice. The choice's tokens are those after as many as the context alone has. The answer is the choice with the
// highest sum of log probabilities (acc), and with the highest sum divided by the choice's characters (acc_norm); of
// equal ones the first. What is longer than the model takes loses its beginning.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/generator.h"

namespace lockstep {

struct TextLoss {
  double nats = 0;  // the sum of the losses
  std::int64_t tokens = 0;
  TextLoss& operator+=(const TextLoss& other) {
    nats += other.nats;
    tokens += other.tokens;
    return *this;
  }
};

// The windows of a document of so many targets: inputs and targets [begin, end), of which those before `counted` are
// ignored.
struct ScoredWindow {
  std::int64_t begin = 0, end = 0, counted = 0;
  bool operator==(const ScoredWindow&) const = default;
};
std::vector<ScoredWindow> sliding_windows(std::int64_t targets, std::int64_t length, std::int64_t stride);

// `length` at most the generator's score_tokens. Of `targets`, which are the document's tokens where there are none,
// those that are kIgnoredTarget do not count.
TextLoss document_loss(Generator& generator, std::int32_t start, std::span<const std::int32_t> document,
                       std::int64_t length, std::int64_t stride, std::span<const std::int32_t> targets = {});

struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> choices;  // at least two
  std::int64_t answer = 0;           // which of them is right
};
struct ChoiceScore {
  std::vector<double> sums;  // log probabilities of each choice
  std::size_t best = 0, best_by_length = 0;
};
using EncodeText = std::function<std::vector<std::int32_t>(const std::string& text)>;

// `between` stands between the context and a choice, and is no part of its length. An empty context is `start`.
ChoiceScore score_choices(Generator& generator, const ChoiceQuestion& question, const std::string& between,
                          std::int32_t start, const EncodeText& encode, std::int64_t length);

// The tokens of a context, and of what follows it where both are encoded together.
std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> encode_pair(std::string context,
                                                                            std::string continuation,
                                                                            const EncodeText& encode);

// One line of a file of questions: {"context": text, "choices": [text, text, …], "answer": from 0}. Other keys are
// allowed. Else `problem` says what is wrong.
std::optional<ChoiceQuestion> parse_question(std::string_view line, std::string& problem);

}  // namespace lockstep
