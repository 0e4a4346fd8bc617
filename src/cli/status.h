// lockstep status: how is a run at this moment, or how was it at its end?
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_status(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
