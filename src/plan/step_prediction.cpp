#include "plan/step_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "plan/kernel_prices.h"
#include "plan/layout_forecast.h"
#include "spec/model/model_flops.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

// The clock of threads, with the prices of the machine's file in the place of a calibration.
StepPrediction predict_threads(const RunSpec& spec, const MachineSpec& machine, const RunData& data, StepKind kind) {
  const int ranks = static_cast<int>(spec.layout.ranks()), cores = static_cast<int>(machine.devices());
  const int threads = spec.run.threads > 0 ? static_cast<int>(spec.run.threads) : std::max(1, cores / ranks);
  const KernelPrices prices(machine, std::min(threads, cores));
  const StepScript script = step_script(spec, data, &prices, kind);
  const MessageRates messages{.latency = machine.intra_node.latency,
                              .summed = machine.sum_rate > 0 ? machine.sum_rate : machine.intra_node.bandwidth,
                              .copied = machine.copy_rate > 0 ? machine.copy_rate : machine.intra_node.bandwidth};
  const LayoutForecast forecast =
      forecast_priced(script, spec.layout, messages, {.cores = cores, .threads = threads}, machine.step);
  StepPrediction prediction{.step_seconds = forecast.step_seconds, .bubble = forecast.bubble};
  prediction.exposed = forecast.exposed;
  prediction.computed = forecast.step_seconds - forecast.exposed_seconds;
  return prediction;
}

// An update by the host's cores reads and writes all of the state that is there, at the rate of its memory.
double host_update_seconds(const RunSpec& spec, const MachineSpec& machine, const Plan& plan) {
  if (!spec.memory.updates_on_host() || machine.host_copy <= 0) return 0;
  double bytes = 0;
  for (const auto& [row, count] : plan.host_rows)
    if (row.first == Tag::optimizer) bytes += static_cast<double>(count.current);
  return 2 * bytes / machine.host_copy;
}

}  // namespace

void require_machine(const RunSpec& spec, const MachineSpec& machine, const std::string& remedy) {
  if (machine.kind == MachineSpec::Kind::threads && machine.nodes > 1)
    throw UserError(
        ExitCode::usage,
        fmt::format("machine {} has {} nodes of kind \"threads\", whose messages between nodes have no price",
                    machine.name, machine.nodes),
        "measure it again with lockstep bench machine under mpirun, or use --set machine.nodes=1");
  if (spec.sync.is_asynchronous())
    throw UserError(ExitCode::usage,
                    fmt::format("the time of asynchronous steps on machine {} is not predicted", machine.name),
                    "leave the machine out, or use sync.kind=full");
  if (spec.layout.unflushed())
    throw UserError(ExitCode::usage,
                    fmt::format("the time of steps with schedule \"{}\" on machine {} is not predicted",
                                name_of(spec.layout.schedule), machine.name),
                    "leave the machine out, or use layout.schedule=1f1b");
  if (machine.kind == MachineSpec::Kind::threads) return;
  if (spec.layout.ranks() <= machine.devices()) return;
  throw UserError(
      ExitCode::usage,
      fmt::format("the layout has {} ranks, and machine {} has {} devices ({} nodes of {})", spec.layout.ranks(),
                  machine.name, machine.devices(), machine.nodes, machine.devices_per_node),
      !remedy.empty() ? remedy
                      : fmt::format("use --set machine.nodes={}, or a smaller layout",
                                    (spec.layout.ranks() + machine.devices_per_node - 1) / machine.devices_per_node));
}

OffloadSeconds offload_seconds(const RunSpec& spec, const MachineSpec& machine, const std::vector<Plan>& stages) {
  const bool disk = spec.memory.offloads_to() == Offload::disk;
  const double read = disk ? machine.disk_read : machine.host_link;
  const double written = disk ? machine.disk_write : machine.host_link;
  const auto seconds = [&](std::int64_t in, std::int64_t out) {
    if (in + out == 0) return 0.0;
    if (read <= 0 || written <= 0)
      throw UserError(ExitCode::usage,
                      fmt::format("machine {} says nothing of its {}", machine.name, disk ? "disk" : "host link"),
                      disk ? "add disk_read and disk_write to its file" : "add host_link to its file");
    const double reads = static_cast<double>(in) / read, writes = static_cast<double>(out) / written;
    return disk ? reads + writes : std::max(reads, writes);
  };
  // Masters and moments move in the update, which begins when all gradients are there. What else moves does so between
  // phases of the step.
  const MemorySpec& memory = spec.memory;
  const bool in_update = memory.offload_gradients == Offload::none && memory.offload_parameters == Offload::none;
  OffloadSeconds most;
  for (const Plan& plan : stages) {
    const double state = seconds(plan.moved.to_device, plan.moved.from_device);
    // Activations leave in the forward and come back in the backward: never both ways at once.
    const double activations = seconds(plan.moved_activations, 0) + seconds(0, plan.moved_activations);
    most.after = std::max(most.after, (in_update ? state : 0) + host_update_seconds(spec, machine, plan));
    most.beside = std::max(most.beside, activations + (in_update ? 0 : state));
  }
  return most;
}

StepPrediction prediction_of(const std::vector<std::vector<StageTimes>>& times, const WorldScript& script) {
  StepPrediction prediction;
  double stages = 0;
  std::vector<WatchedRank> watched;
  const std::span all(times);
  const auto servers = static_cast<std::size_t>(script.servers_each);
  for (const auto& replica : all.first(all.size() - servers))
    for (std::size_t s = 0; s < replica.size(); ++s) {
      ++stages;
      prediction.step_seconds += replica[s].end - replica[s].begin;
      prediction.computed += replica[s].computed;
      for (std::size_t a = 0; a < prediction.exposed.size(); ++a) prediction.exposed[a] += replica[s].waited[a];
      if (!replica[s].spans.empty()) watched.push_back({script.stages[s].step, replica[s].spans});
    }
  prediction.step_seconds /= stages;
  prediction.computed /= stages;
  for (double& seconds : prediction.exposed) seconds /= stages;
  if (watched.size() > 1) prediction.bubble = pipeline_bubble(watched);
  if (servers == 0) return prediction;
  double served = 0;
  for (const auto& server : all.last(servers))
    for (const StageTimes& stage : server) served += stage.computed;
  prediction.served = served / static_cast<double>(servers * script.servers.size());
  return prediction;
}

namespace {

// Of one kind of a run's steps: how long it takes, and what it waits for.
StepPrediction predict_kind(const RunSpec& spec, const MachineSpec& machine, const KernelPrices& prices,
                            const RunData& data, StepKind kind) {
  if (machine.kind == MachineSpec::Kind::threads) return predict_threads(spec, machine, data, kind);
  const WorldScript script = world_script(spec, machine, prices, data, kind);
  return prediction_of(run_clock(script, machine, {.spans = spec.layout.pp > 1}), script);
}

// The mean of a run's steps. The bubble is that of most of them.
StepPrediction predict_mean(const RunSpec& spec, const MachineSpec& machine, const KernelPrices& prices,
                            const RunData& data) {
  StepPrediction mean = predict_kind(spec, machine, prices, data, StepKind::usual);
  if (!spec.sync.takes_local_steps()) return mean;
  const StepPrediction one = predict_kind(spec, machine, prices, data, StepKind::synchronizing);
  const LocalStepTimes times{.every = spec.sync.every, .local = mean.step_seconds, .synchronizing = one.step_seconds};
  mean.local = times;
  mean.step_seconds = times.mean();
  mean.computed = times.over(mean.computed, one.computed);
  for (std::size_t a = 0; a < mean.exposed.size(); ++a) mean.exposed[a] = times.over(mean.exposed[a], one.exposed[a]);
  return mean;
}

}  // namespace

StepPrediction predict_step(const RunSpec& spec, const MachineSpec& machine, const RunData& data,
                            const std::vector<Plan>& stages) {
  require_machine(spec, machine);
  const KernelPrices prices(machine);
  StepPrediction prediction = predict_mean(spec, machine, prices, data);
  const OffloadSeconds moved = offload_seconds(spec, machine, stages);
  prediction.offload = moved.beside + moved.after;
  prediction.step_seconds = std::max(prediction.step_seconds, moved.beside) + moved.after;
  const double flops = model_flops(spec.model, spec.train.global_batch, data.sample_work(), spec.lora);
  const double devices =
      static_cast<double>(machine.kind == MachineSpec::Kind::threads ? machine.devices() : spec.layout.ranks());
  prediction.mfu = flops / (prediction.step_seconds * devices * prices.peak(storage_types(spec.precision).compute));
  prediction.tokens_per_second = static_cast<double>(stages.front().tokens_a_step) / prediction.step_seconds;
  return prediction;
}

nlohmann::ordered_json to_json(const StepPrediction& p, const MachineSpec& machine) {
  nlohmann::ordered_json exposed;
  for (const MeshAxis axis : kMeshAxes) exposed[name_of(axis)] = p.exposed[static_cast<std::size_t>(axis)];
  nlohmann::ordered_json json{{"machine", machine.name},
                              {"step_seconds", p.step_seconds},
                              {"tokens_per_second", p.tokens_per_second},
                              {"mfu", p.mfu},
                              {"bubble", p.bubble ? nlohmann::ordered_json(*p.bubble) : nullptr},
                              {"exposed_seconds", exposed},
                              {"compute_seconds", p.computed},
                              {"offload_seconds", p.offload}};
  if (p.served) json["server_seconds"] = *p.served;
  if (p.local)
    json["local_steps"] = {{"every", p.local->every},
                           {"local_seconds", p.local->local},
                           {"synchronizing_seconds", p.local->synchronizing}};
  return json;
}

}  // namespace lockstep
