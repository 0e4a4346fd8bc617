// lockstep bench comm: how fast ranks exchange, as threads and as processes.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

// Of the command `bench`.
void add_bench_comm(CLI::App& bench, std::function<int()>& chosen);

}  // namespace lockstep
