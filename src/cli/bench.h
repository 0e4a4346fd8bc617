// lockstep bench: how fast this machine runs a model, beside its own ceilings.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_bench(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
