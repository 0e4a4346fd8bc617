#include "cli/simulate_view.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/text_table.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

std::string row(std::string_view name, const std::string& text) { return fmt::format("{:<14} {}\n", name, text); }

std::string percent(double part, double all) { return fmt::format("{:.1f} %", 100 * part / all); }

std::string waits_text(const ByAxis& waited, double step) {
  std::string text;
  for (const MeshAxis axis : kMeshAxes)
    if (const double seconds = waited[static_cast<std::size_t>(axis)]; seconds > 0)
      text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", name_of(axis), seconds_text(seconds),
                          percent(seconds, step));
  return text.empty() ? "none" : text;
}

nlohmann::ordered_json axes_json(const ByAxis& seconds) {
  nlohmann::ordered_json json;
  for (const MeshAxis axis : kMeshAxes) json[name_of(axis)] = seconds[static_cast<std::size_t>(axis)];
  return json;
}

std::string slowest_text(const StepSimulation& steps) {
  std::string stages;
  for (std::size_t s = 0; s < steps.slowest_stages.size(); ++s)
    if (steps.slowest_stages[s] > 1)
      stages += fmt::format("{}{} ({:g}x)", stages.empty() ? "" : ", ", s, steps.slowest_stages[s]);
  if (stages.empty()) return fmt::format("replica {}, whose ranks are not slow", steps.slowest);
  return fmt::format("replica {}, slow in stage{} {}", steps.slowest, stages.find(',') == std::string::npos ? "" : "s",
                     stages);
}

std::string stages_text(const SimulatedRun& run) {
  TextTable table{
      .title = "", .heads = {"stage", "slow ranks", "with one alone", "slower by", "computes", "waits"}, .rows = {}};
  for (std::size_t s = 0; s < run.steps.stages.size(); ++s) {
    const SimulatedStage& stage = run.steps.stages[s];
    double waits = 0;
    for (const double seconds : stage.waited) waits += seconds;
    const double alone = run.plain_seconds() + stage.alone_seconds - run.steps.plain_seconds;
    table.rows.push_back({fmt::format("{}", s), grouped_digits(stage.slow_ranks),
                          stage.slow_ranks > 0 ? seconds_text(alone) : "",
                          stage.slow_ranks > 0 ? percent(alone - run.plain_seconds(), run.plain_seconds()) : "",
                          seconds_text(stage.computed), seconds_text(waits)});
  }
  return table.plain();
}

std::string month_text(const SimulatedRun& run, const SimulatedRun::Month& month) {
  const GoodputSpec& spec = month.spec;
  const GoodputForecast& f = month.forecast;
  const double all = spec.duration_seconds;
  const CheckpointCosts costs = checkpoint_costs(spec);
  const auto steps_of = [&](double seconds) {
    return fmt::format("{} ({:.3g} steps)", seconds_text(seconds), seconds / spec.step_seconds);
  };
  std::string out = row("failures", fmt::format("one per {} of the whole run, {:.0f} in {:g} days; restarts take {}",
                                                seconds_text(1 / spec.failures_per_second()), f.failures, all / 86400,
                                                seconds_text(spec.restart_seconds)));
  out += row("checkpoint", fmt::format("{} per rank: stalls {}, on disk {} later", byte_text(month.save.bytes),
                                       seconds_text(month.save.stall_seconds), seconds_text(month.save.write_seconds)));
  out += row("saved every", fmt::format("{} step{}", grouped_digits(spec.save_every), spec.save_every == 1 ? "" : "s"));
  out += row("goodput", fmt::format("{:.2f} % (5 % to 95 %: {:.2f} to {:.2f}); closed form {:.2f} %", 100 * f.mean,
                                    100 * f.low, 100 * f.high, 100 * month.closed_form));
  const auto lost = [&](std::string_view name, double seconds) {
    if (seconds > 0) out += row(fmt::format("  {}", name), fmt::format("{:.2f} %", 100 * seconds / all));
  };
  lost("steps again", f.lost.redone);
  lost("saves", f.lost.saves);
  lost("detection", f.lost.detection);
  lost("repairs", f.lost.waiting);
  lost("restarts", f.lost.restart);
  lost("fewer nodes", f.lost.shrunk);
  out += row("steps", fmt::format("{} in {:g} days", count_text(f.steps), all / 86400));
  out += row("best interval", fmt::format("{} step{}: goodput {:.2f} %", grouped_digits(month.best_every),
                                          month.best_every == 1 ? "" : "s", 100 * month.best_goodput));
  out += row("  exact", steps_of(best_work_seconds(costs)));
  out += row("  Young", steps_of(young_work_seconds(costs)));
  out += row("  Daly", steps_of(daly_work_seconds(costs)));
  if (run.steps.slowdown() > 1)
    out += row("in all", fmt::format("{:.2f} % of the steps that no failure and no slow rank would allow",
                                     100 * f.mean * run.plain_seconds() / run.step_seconds()));
  return out;
}

nlohmann::ordered_json month_json(const SimulatedRun::Month& month) {
  const GoodputForecast& f = month.forecast;
  const CheckpointCosts costs = checkpoint_costs(month.spec);
  return {{"mean", f.mean},
          {"low", f.low},
          {"high", f.high},
          {"closed_form", month.closed_form},
          {"days", month.spec.duration_seconds / 86400},
          {"steps", f.steps},
          {"failures", f.failures},
          {"device_hours_between_failures", month.spec.device_hours_between_failures},
          {"run_seconds_between_failures", 1 / month.spec.failures_per_second()},
          {"restart_seconds", month.spec.restart_seconds},
          {"checkpoint_bytes", month.save.bytes},
          {"save_stall_seconds", month.save.stall_seconds},
          {"save_write_seconds", month.save.write_seconds},
          {"save_every", month.spec.save_every},
          {"lost_seconds",
           {{"redone", f.lost.redone},
            {"saves", f.lost.saves},
            {"detection", f.lost.detection},
            {"waiting", f.lost.waiting},
            {"restart", f.lost.restart},
            {"shrunk", f.lost.shrunk}}},
          {"best_save_every", month.best_every},
          {"best_goodput", month.best_goodput},
          {"best_seconds", best_work_seconds(costs)},
          {"young_seconds", young_work_seconds(costs)},
          {"daly_seconds", daly_work_seconds(costs)}};
}

}  // namespace

std::string simulation_text(const SimulatedRun& run) {
  const StepSimulation& steps = run.steps;
  const double step = run.step_seconds();
  std::string out = row("machine", fmt::format("{}: {} nodes of {} devices; {} ranks, {}", run.machine.name,
                                               grouped_digits(run.machine.nodes), run.machine.devices_per_node,
                                               grouped_digits(run.spec.layout.ranks()), to_text(run.spec.layout)));
  out +=
      row("replicas", fmt::format("{} of {} simulated ({} different), {} slow rank{}", grouped_digits(steps.simulated),
                                  grouped_digits(steps.replicas), grouped_digits(steps.kinds),
                                  grouped_digits(std::ssize(steps.slow)), steps.slow.size() == 1 ? "" : "s"));
  out += row("all alike", fmt::format("{} per step", seconds_text(run.plain_seconds())));
  out += row("  waits", waits_text(steps.plain_waited, run.plain_seconds()));
  out += row("simulated",
             fmt::format("{} per step: {:.3f} times as long{}", seconds_text(step), step / run.plain_seconds(),
                         run.asked.jitter > 0 ? fmt::format(" (of {} steps {} to {})", run.asked.steps,
                                                            seconds_text(step + steps.shortest - steps.step_seconds),
                                                            seconds_text(step + steps.longest - steps.step_seconds))
                                              : ""));
  out += row("  waits", waits_text(steps.waited, step));
  if (steps.slowdown() > 1 && steps.replicas > 1) out += row("held up by", slowest_text(steps));
  if (steps.stages.size() > 1) out += stages_text(run);
  if (run.month) out += "\n" + month_text(run, *run.month);
  return out;
}

nlohmann::ordered_json simulation_json(const SimulatedRun& run) {
  const StepSimulation& steps = run.steps;
  const double step = run.step_seconds();
  nlohmann::ordered_json json{{"machine", run.machine.name},
                              {"nodes", run.machine.nodes},
                              {"ranks", run.spec.layout.ranks()},
                              {"layout", to_text(run.spec.layout)},
                              {"seed", run.asked.seed},
                              {"plain_step_seconds", run.plain_seconds()},
                              {"step_seconds", step},
                              {"slowdown", step / run.plain_seconds()},
                              {"shortest_step_seconds", step + steps.shortest - steps.step_seconds},
                              {"longest_step_seconds", step + steps.longest - steps.step_seconds},
                              {"compute_seconds", steps.computed},
                              {"exposed_seconds", axes_json(steps.waited)},
                              {"plain_exposed_seconds", axes_json(steps.plain_waited)},
                              {"replicas", steps.replicas},
                              {"kinds", steps.kinds},
                              {"simulated", steps.simulated},
                              {"slow_ranks", steps.slow.size()},
                              {"slowest_replica", steps.slowest},
                              {"slowest_replica_slowness", steps.slowest_stages}};
  json["stages"] = nlohmann::ordered_json::array();
  for (const SimulatedStage& stage : steps.stages)
    json["stages"].push_back({{"slow_ranks", stage.slow_ranks},
                              {"slowness", stage.slowness},
                              {"alone_step_seconds", run.plain_seconds() + stage.alone_seconds - steps.plain_seconds},
                              {"compute_seconds", stage.computed},
                              {"exposed_seconds", axes_json(stage.waited)}});
  json["goodput"] = run.month ? month_json(*run.month) : nlohmann::ordered_json(nullptr);
  return json;
}

}  // namespace lockstep
