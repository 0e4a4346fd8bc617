#include "train/scoring.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "kernels/cross_entropy.h"
#include "spec/text/bounded_json.h"

namespace lockstep {

namespace {

std::int64_t characters_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

std::vector<ScoredWindow> sliding_windows(std::int64_t targets, std::int64_t length, std::int64_t stride) {
  LOCKSTEP_CHECK(length >= 1 && stride >= 1 && stride <= length, "windows of {} every {}", length, stride);
  std::vector<ScoredWindow> windows;
  for (std::int64_t begin = 0, done = 0; done < targets; begin += stride) {
    const std::int64_t end = std::min(begin + length, targets);
    windows.push_back({.begin = begin, .end = end, .counted = done});
    done = end;
  }
  return windows;
}

TextLoss document_loss(Generator& generator, std::int32_t start, std::span<const std::int32_t> document,
                       std::int64_t length, std::int64_t stride, std::span<const std::int32_t> wanted) {
  TextLoss loss;
  if (wanted.empty()) wanted = document;
  std::vector<std::int32_t> inputs{start};
  inputs.insert(inputs.end(), document.begin(), document.end());
  for (const ScoredWindow& window : sliding_windows(std::ssize(document), length, stride)) {
    const auto begin = static_cast<std::size_t>(window.begin), count = static_cast<std::size_t>(window.end) - begin;
    std::vector<std::int32_t> targets(wanted.begin() + window.begin, wanted.begin() + window.end);
    std::fill_n(targets.begin(), window.counted - window.begin, kIgnoredTarget);
    for (const double one : generator.score(std::span(inputs).subspan(begin, count), targets)) loss.nats += one;
    loss.tokens += std::ssize(targets) - std::ranges::count(targets, kIgnoredTarget);
  }
  return loss;
}

std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> encode_pair(std::string context,
                                                                            std::string continuation,
                                                                            const EncodeText& encode) {
  const std::size_t end = context.find_last_not_of(" \t\n\r\f\v") + 1;  // 0 where there is nothing else
  continuation = context.substr(end) + continuation;
  context.resize(end);
  std::vector<std::int32_t> before = encode(context);
  const std::vector<std::int32_t> whole = encode(context + continuation);
  const auto cut = std::min(before.size(), whole.size());
  before.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
  return {std::move(before), {whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end()}};
}

ChoiceScore score_choices(Generator& generator, const ChoiceQuestion& question, const std::string& between,
                          std::int32_t start, const EncodeText& encode, std::int64_t length) {
  ChoiceScore score;
  std::vector<double> by_length;
  for (const std::string& choice : question.choices) {
    auto [ids, answer] = encode_pair(question.context, between + choice, encode);
    if (ids.empty()) ids.push_back(start);
    const auto first = std::ssize(ids);  // of the answer
    ids.insert(ids.end(), answer.begin(), answer.end());
    double sum = 0;
    if (!answer.empty()) {
      // All but the last are read, all but the first predicted; what does not fit is the beginning.
      const std::int64_t from = std::max<std::int64_t>(0, std::ssize(ids) - 1 - length);
      const auto count = static_cast<std::size_t>(std::ssize(ids) - 1 - from);
      std::vector<std::int32_t> targets(ids.begin() + from + 1, ids.end());
      for (std::int64_t i = 0; i < std::ssize(targets); ++i)
        if (from + 1 + i < first) targets[static_cast<std::size_t>(i)] = kIgnoredTarget;
      for (const double loss : generator.score(std::span(ids).subspan(static_cast<std::size_t>(from), count), targets))
        sum -= loss;
    }
    score.sums.push_back(sum);
    by_length.push_back(sum / static_cast<double>(std::max<std::int64_t>(1, characters_of(choice))));
  }
  const auto best = [](const std::vector<double>& of) {
    return static_cast<std::size_t>(std::ranges::max_element(of) - of.begin());
  };
  score.best = best(score.sums);
  score.best_by_length = best(by_length);
  return score;
}

std::optional<ChoiceQuestion> parse_question(std::string_view line, std::string& problem) {
  const auto refuse_line = [&](const char* what) {
    problem = what;
    return std::nullopt;
  };
  const std::optional<nlohmann::json> parsed = parse_bounded_json<nlohmann::json>(line, {}, problem);
  if (!parsed) return std::nullopt;
  const nlohmann::json& json = *parsed;
  if (!json.is_object()) return refuse_line("is no JSON object");
  const auto context = json.find("context"), choices = json.find("choices"), answer = json.find("answer");
  if (context == json.end() || !context->is_string()) return refuse_line("has no text 'context'");
  if (choices == json.end() || !choices->is_array() || choices->size() < 2 ||
      !std::ranges::all_of(*choices, [](const nlohmann::json& one) { return one.is_string() && one != ""; }))
    return refuse_line("has no list 'choices' of two texts or more, none of them empty");
  if (answer == json.end() || !answer->is_number_integer() || *answer < 0 ||
      *answer >= static_cast<std::int64_t>(choices->size()))
    return refuse_line("has no 'answer', the number of the right choice from 0 on");
  return ChoiceQuestion{.context = context->get<std::string>(),
                        .choices = choices->get<std::vector<std::string>>(),
                        .answer = answer->get<std::int64_t>()};
}

}  // namespace lockstep
