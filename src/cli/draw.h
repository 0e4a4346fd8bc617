// lockstep draw: the pictures of the documentation, as SVG.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_draw(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
