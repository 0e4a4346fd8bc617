// lockstep generate: a trained model goes on with a text.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep {

void add_generate(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
