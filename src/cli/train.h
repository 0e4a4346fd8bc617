// lockstep train: trains what a run file says.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep {

void add_train(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
