// lockstep bench disk: how fast a disk is for offloaded state.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

// Of the command `bench`.
void add_bench_disk(CLI::App& bench, std::function<int()>& chosen);

}  // namespace lockstep
