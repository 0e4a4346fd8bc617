// lockstep verify: is what this program computes what it should be?
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

// Adds the command to the parser; `chosen` becomes what runs it and returns the exit code.
void add_verify(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
