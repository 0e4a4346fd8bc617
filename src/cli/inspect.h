// lockstep inspect: what is in a file or folder, and is it whole?
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_inspect(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
