// lockstep eval: how well a model predicts texts, and answers questions with choices.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_eval(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
