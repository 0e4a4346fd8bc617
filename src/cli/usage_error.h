// What is wrong with a command line, in one line: the problem, the nearest thing that is known, and where to read on.
#pragma once
#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lockstep {

// The command that was chosen, or the command of a command; the program itself where none was.
const CLI::App& chosen_command(const CLI::App& app);

// Of an error that parsing these arguments has thrown.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

// Arguments that parse and do not fit.
[[noreturn]] void refuse(const std::string& problem, const std::string& remedy);

}  // namespace lockstep
