// lockstep metrics: the numbers of a run's steps and evaluations for other programs.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_metrics(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
