// lockstep report: what a run has come to.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_report(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
