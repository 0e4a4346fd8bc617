// lockstep export: a checkpoint as a Hugging Face folder.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_export(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
