// lockstep draw: the pictures of the documentation, as SVG.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep {

void add_draw(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
