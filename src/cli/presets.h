// `lockstep presets`: the models that model.preset knows, and their sizes.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_presets(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
