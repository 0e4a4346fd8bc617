// lockstep doctor: what is wrong with a run, and what to do about it?
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

// Adds the command to the parser; `chosen` becomes what runs it and returns the exit code.
void add_doctor(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
