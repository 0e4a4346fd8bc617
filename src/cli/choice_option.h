// An option that takes one of a few values. Any other value is refused, and the message names all of them.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "spec/text/text_input.h"

namespace lockstep {

template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

// "cpu, cuda or meta".
template <class Value>
std::string choices_text(const Choices<Value>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i)
    text += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + choices[i].first;
  return text;
}

// The value of a word. UserError (usage) where it is none of them.
template <class Value>
Value chosen_of(const std::string& option, const std::string& word, const Choices<Value>& choices) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : choices) {
    if (name == word) return value;
    names.push_back(name);
  }
  throw UserError(ExitCode::usage, fmt::format("{} {}: it must be {}", option, quote_text(word), choices_text(choices)),
                  fmt::format("did you mean '{}'?", nearest_word(word, names)));
}

// `what` and, in brackets, the value where the option is left out: "What to compute on", "cpu".
template <class Field, class Value>
CLI::Option* add_choice_option(CLI::App& command, const std::string& option, Field& field,
                               const Choices<Value>& choices, const std::string& what, const std::string& usual) {
  return command
      .add_option_function<std::string>(
          option, [option, choices, &field](const std::string& word) { field = chosen_of(option, word, choices); },
          fmt::format("{}: {} [{}]", what, choices_text(choices), usual))
      ->type_name("NAME");
}

}  // namespace lockstep
