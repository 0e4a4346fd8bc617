// lockstep launch: train, under an agent that starts the ranks again after a fault (launch/agent.h).
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_launch(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
