#include "cli/generate_answer.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace lockstep {

Answer::Answer(const Options& options, const TextModel& source, const std::vector<std::int32_t>& prompt)
    : options_(options), stops_(options.stops) {
  if (source.text) decoded_.emplace(*source.text, prompt);
}

bool Answer::add(std::int32_t token) {
  tokens_.push_back(token);
  if (options_.ids) return print(fmt::format("{}{}", tokens_.size() > 1 ? " " : "", token));
  return print(stops_.push(decoded_ ? decoded_->push(token) : bytes_.push(token))) && !stops_.found();
}

void Answer::finish(const std::vector<std::int32_t>& prompt, Finish why, double seconds) {
  if (!options_.ids) {
    print(stops_.push(decoded_ ? decoded_->finish() : bytes_.finish()));
    print(stops_.finish());
  }
  if (!options_.json) {
    std::fputc('\n', stdout);
    return;
  }
  const char* const reason = stops_.found()                ? "stop"
                             : why == Finish::enough       ? "length"
                             : why == Finish::end_of_text  ? "end"
                             : why == Finish::no_positions ? "positions"
                                                           : "interrupted";
  const nlohmann::ordered_json out{{"prompt_tokens", prompt},
                                   {"tokens", tokens_},
                                   {"text", options_.ids ? nlohmann::ordered_json() : nlohmann::ordered_json(whole_)},
                                   {"tokens_per_s", static_cast<double>(tokens_.size()) / seconds},
                                   {"finish", reason}};
  fmt::print("{}\n", out.dump());
}

bool Answer::print(const std::string& piece) {
  whole_ += piece;
  if (options_.json) return true;
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  return std::fflush(stdout) == 0;
}

}  // namespace lockstep
