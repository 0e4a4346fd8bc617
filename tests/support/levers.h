// Every lever that lowers memory, as a change of a run, and combinations of them: what tests hold all of them to.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "spec/run/run_spec.h"

namespace lockstep::tests {

struct NamedLever {
  std::string name;
  std::function<void(RunSpec&)> use;  // of a run whose layout is set
};
// A lever of another kind than this may be combined with it; two of one kind may not.
using LeverKind = std::vector<NamedLever>;
std::vector<LeverKind> kinds_of_levers();

// Whether a run file could say it. Offload to "host" on the cpu, between two memories of the host, is for tests alone.
bool could_be_run(RunSpec spec);

// A run of a small model with this layout, which evaluates and saves, and uses no lever.
RunSpec run_without_levers(const std::string& layout);

// Layouts of one rank and of every axis, up to eight ranks.
std::vector<std::string> layouts_for_levers();

struct LeverCombination {
  std::string words;
  RunSpec run;
  std::vector<std::string> levers;
};
// So many that could be run, by a seed, none twice.
std::vector<LeverCombination> lever_combinations(std::size_t count, unsigned seed);

// Every rank's ledgers of the device, the host and the disk, and what it moves per step, are what meta says.
void expect_costs_as_planned(const RunSpec& spec, const std::string& words);

}  // namespace lockstep::tests
