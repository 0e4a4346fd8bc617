// lockstep simulate: a run on a large machine, with slow ranks, jitter and failures, before anything is rented.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_simulate(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
