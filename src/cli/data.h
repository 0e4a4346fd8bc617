// lockstep data inspect: what a file of tokens, or the mixture of a run file, holds.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_data(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
