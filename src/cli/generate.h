// lockstep generate: continues a text with a trained model.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_generate(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
