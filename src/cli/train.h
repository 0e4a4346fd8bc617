// lockstep train: trains what a run file says.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_train(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
