// lockstep plan: what a run will take, before it runs.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_plan(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
