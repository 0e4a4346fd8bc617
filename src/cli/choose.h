// lockstep choose: which layout a run should have on a machine, and why.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_choose(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
