// lockstep bench machine: measures this machine and writes a machine file.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

// Of the command `bench`.
void add_bench_machine(CLI::App& bench, std::function<int()>& chosen);

}  // namespace lockstep
