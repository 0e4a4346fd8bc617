// lockstep bench update: how fast the host updates optimizer state that is offloaded to its memory.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

// Of the command `bench`.
void add_bench_update(CLI::App& bench, std::function<int()>& chosen);

}  // namespace lockstep
