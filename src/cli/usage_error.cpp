#include "cli/usage_error.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "base/error.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

// "lockstep bench comm --help".
std::string help_of(const CLI::App& command) {
  std::string names;
  for (const CLI::App* at = &command; at; at = at->get_parent()) names = at->get_name() + " " + names;
  return names + "--help";
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  return std::string(nearest_word(word, known));
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* inner : command.get_subcommands(nullptr)) names.push_back(inner->get_name());
  return names;
}

std::string unknown_option(const std::string& option, const CLI::App& command) {
  return fmt::format("unknown option {}; did you mean '{}'? {} lists all", quote_text(option),
                     nearest(option.substr(0, option.find('=')), options_of(command)), help_of(command));
}

// A word that is neither command nor option.
std::string unexpected(const std::string& word, const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> commands = commands_of(command);
  if (&command == &app)
    return fmt::format("unknown command {}; did you mean '{}'? {} lists all", quote_text(word), nearest(word, commands),
                       help_of(command));
  return fmt::format("{} is one argument too many; {} lists what it takes", quote_text(word), help_of(command));
}

}  // namespace

const CLI::App& chosen_command(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen_command(app);
  const std::vector<std::string> rest = app.remaining(true);
  // Checked first: what seems to be missing may be what was misspelt.
  for (const std::string& word : rest)
    if (word.size() > 1 && word[0] == '-') return unknown_option(word, command);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !rest.empty()) return unexpected(rest.front(), app, command);
  std::string text = error.what();
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return fmt::format("{}; see {}", text, help_of(command));
}

void refuse(const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::usage, problem, remedy);
}

}  // namespace lockstep
