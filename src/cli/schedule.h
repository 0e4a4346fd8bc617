// lockstep schedule: pipelines drawn, compared, and held beside what a trace says.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_schedule(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
