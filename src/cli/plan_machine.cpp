#include "cli/plan_machine.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "telemetry/number_text.h"

namespace lockstep {

namespace {

std::string line(std::string_view name, const std::string& text) { return fmt::format("{:<12} {}\n", name, text); }

std::string part_of_step(double part, double all) {
  return fmt::format("{} ({:.1f} %)", seconds_text(part), 100 * part / all);
}

}  // namespace

bool fits_device(const MachineSpec& machine, const RunSpec& spec, const Plan& fullest) {
  const std::int64_t ranks = machine.kind == MachineSpec::Kind::threads ? spec.layout.ranks() : 1;
  return machine.memory <= 0 || fullest.peak * ranks <= machine.memory;
}

std::string prediction_table(const RunSpec& spec, const MachineSpec& machine, const StepPrediction& p,
                             const Plan& fullest) {
  const bool threads = machine.kind == MachineSpec::Kind::threads;
  std::string out = line("machine", fmt::format("{}: {} node{} of {} {}, {} each", machine.name, machine.nodes,
                                                machine.nodes == 1 ? "" : "s", machine.devices_per_node,
                                                threads ? "cores" : "devices", byte_text(machine.memory)));
  out += line("step time", fmt::format("{}: {} tokens/s, MFU {:.1f} %", seconds_text(p.step_seconds),
                                       count_text(p.tokens_per_second), 100 * p.mfu));
  if (p.local)
    out += line("", fmt::format("mean of {} steps: {} without the synchronization, {} with it", p.local->every,
                                seconds_text(p.local->local), seconds_text(p.local->synchronizing)));
  out += line("  computing", part_of_step(p.computed, p.step_seconds));
  for (const MeshAxis axis : kMeshAxes)
    if (const double waited = p.exposed[static_cast<std::size_t>(axis)]; waited > 0)
      out += line(fmt::format("  waits, {}", name_of(axis)), part_of_step(waited, p.step_seconds));
  if (p.served) out += line("  servers", fmt::format("compute {} of it", seconds_text(*p.served)));
  if (p.offload > 0) out += line("  offload", fmt::format("{} beside it", part_of_step(p.offload, p.step_seconds)));
  if (p.bubble) out += line("bubble", fmt::format("{:.1f} %", 100 * *p.bubble));
  if (!fits_device(machine, spec, fullest))
    out += line("too large", fmt::format("rank {} needs {} and a {} has {}: lockstep plan --fit {} finds what fits",
                                         fullest.rank, byte_text(fullest.peak), threads ? "node" : "device",
                                         byte_text(machine.memory), byte_text(machine.memory)));
  out.pop_back();  // whoever prints it ends the line
  return out;
}

nlohmann::ordered_json prediction_json(const MachineSpec& machine, const StepPrediction& p, std::int64_t peak_bytes) {
  nlohmann::ordered_json json = to_json(p, machine);
  json["peak_bytes"] = peak_bytes;
  return json;
}

}  // namespace lockstep
