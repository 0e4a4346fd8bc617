// lockstep dashboard: a live page over one or many runs.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_dashboard(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
