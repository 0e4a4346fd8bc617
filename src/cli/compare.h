// lockstep compare: one run under many layouts, and what each of them costs.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_compare(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
