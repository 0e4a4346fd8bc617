// plan --sweep KEY=V1,V2,…: a run's step and memory on a machine, for each value of one setting.
//
// KEY is a setting of the run (train.global_batch), of the machine (machine.inter_node.bandwidth), or `nodes`: then the
// machine has that many nodes and dp grows with them. Strong scaling keeps the global batch and the samples of a
// micro-batch, so a replica has fewer micro-batches; weak scaling keeps what a replica has to do, and the batch grows
// from that of the first value. A value that makes no run is a row with the reason.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/machine_arguments.h"
#include "cli/run_arguments.h"
#include "plan/step_prediction.h"

namespace lockstep {

enum class Scaling { strong, weak };
constexpr std::string_view name_of(Scaling scaling) { return scaling == Scaling::strong ? "strong" : "weak"; }

struct SweepArguments {
  std::string text;                                  // KEY=V1,V2,…; empty: no sweep
  std::vector<Scaling> scaling = {Scaling::strong};  // of nodes
  std::string svg;
  bool json = false;

  void add_to(CLI::App& command, CLI::Option& machine);
};

struct SweepRow {
  std::string value;
  std::optional<Scaling> scaling = {};
  std::string impossible = {};  // why; empty: it is possible, and the rest is said
  RunSpec spec = {};
  MachineSpec machine = {};
  StepPrediction predicted = {};
  Plan fullest = {};  // of its stages
  bool fits = true;
  std::optional<double> efficiency = {};  // of scaling: tokens/s per node, relative to the first that is possible
};

struct Sweep {
  std::string key;
  std::vector<SweepRow> rows;
};

// One run. UserError where it is none.
SweepRow predicted_row(const std::string& value, const RunSpec& spec, const MachineSpec& machine);
// Of `nodes`: `base` is the run of the first of them but for dp.
Sweep scaling_sweep(const RunSpec& base, const MachineSpec& machine, const std::vector<std::string>& nodes,
                    const std::vector<Scaling>& scaling);

std::string sweep_table(const Sweep& sweep);
nlohmann::ordered_json sweep_json(const Sweep& sweep);
// Step time and memory over the values; of nodes, tokens/s against ideal. Rows that are impossible are left out.
std::string sweep_svg(const Sweep& sweep);

// Prints it and draws it. UserError (usage) where no value is possible.
int show_sweep(const SweepArguments& sweep, const RunArguments& run, const LayoutArguments& layout,
               const MachineArguments& machine);

}  // namespace lockstep
