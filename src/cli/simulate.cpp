#include "cli/simulate.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/machine_arguments.h"
#include "cli/run_arguments.h"
#include "cli/simulate_view.h"
#include "cli/usage_error.h"
#include "plan/gathered_room.h"
#include "plan/kernel_prices.h"
#include "spec/run/run_extent.h"
#include "spec/text/text_input.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr int kMostSimulatedRanks = 1'000'000;  // as many as a layout may name

struct SimulateSettings {
  std::vector<std::string> slow;
  std::string jitter;
  int steps = 3;
  std::uint64_t seed = 1;
  double failures = -1;  // hours; as the machine's file says
  std::int64_t save_every = 0, spares = 0, repeats = 100;
  double days = 30, repair = 0;
  bool json = false;
};

std::optional<double> number_before(std::string_view text, std::string_view unit) {
  if (!text.ends_with(unit)) return std::nullopt;
  text.remove_suffix(unit.size());
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

SlowShare parse_slow(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto share = number_before(std::string_view(text).substr(0, colon), "%");
    const auto factor = number_before(std::string_view(text).substr(colon + 1), "x");
    if (share && factor && *share >= 0 && *share <= 100 && *factor >= 1 && *factor <= 1e6)
      return {.share = *share / 100, .factor = *factor};
  }
  refuse(fmt::format("--slow {}: it is no share of ranks and factor", quote_text(text)),
         "give a share up to 100 % and a factor from 1 on, as in --slow 1%:1.5x");
}

SimulationSpec simulation_of(const SimulateSettings& s) {
  SimulationSpec spec{.seed = s.seed, .steps = s.steps};
  double shares = 0;
  for (const std::string& text : s.slow) shares += spec.slow.emplace_back(parse_slow(text)).share;
  if (shares > 1 + 1e-9) refuse("--slow: more than all ranks are slow", "give shares that add up to 100 % at most");
  if (!s.jitter.empty()) {
    const auto percent = number_before(s.jitter, "%");
    if (!percent || *percent < 0 || *percent > 100)
      refuse(fmt::format("--jitter {}: it is no share from 0 % to 100 %", quote_text(s.jitter)),
             "give one, as in --jitter 3%");
    spec.jitter = *percent / 100;
  }
  return spec;
}

std::optional<SimulatedRun::Month> month_of(const SimulateSettings& s, const SimulatedRun& run,
                                            const std::vector<Plan>& stages) {
  const double hours = s.failures >= 0 ? s.failures : run.machine.hours_between_failures;
  if (hours <= 0) return std::nullopt;
  SimulatedRun::Month month{.save = save_costs(run.spec, run.machine, stages)};
  month.spec = {.step_seconds = run.step_seconds(),
                .ranks = run.spec.layout.ranks(),
                .devices_per_node = run.machine.devices_per_node,
                .device_hours_between_failures = hours,
                .save_stall_seconds = month.save.stall_seconds,
                .save_write_seconds = month.save.write_seconds,
                .restart_seconds = run.machine.restart_seconds,
                .spare_nodes = s.spares,
                .repair_seconds = s.repair * 3600,
                .duration_seconds = s.days * 86400,
                .repeats = s.repeats,
                .seed = s.seed};
  month.best_every = best_interval(month.spec);
  const CheckpointCosts costs = checkpoint_costs(month.spec);
  const auto expected = [&](std::int64_t every) {
    return expected_goodput(costs, static_cast<double>(every) * month.spec.step_seconds);
  };
  month.best_goodput = expected(month.best_every);
  month.spec.save_every = s.save_every > 0                ? s.save_every
                          : run.spec.train.save_every > 0 ? run.spec.train.save_every
                                                          : month.best_every;
  month.closed_form = expected(month.spec.save_every);
  month.forecast = simulate_goodput(month.spec);
  return month;
}

int show_simulation(const SimulateSettings& s, const RunSpec& spec, const MachineSpec& machine) {
  if (machine.kind == MachineSpec::Kind::threads)
    refuse(fmt::format("machine {}: its ranks are threads that share cores", machine.name),
           "simulate one whose ranks have devices (kind = \"devices\"), as in --machine h100-sxm");
  if (spec.sync.takes_local_steps())
    refuse(fmt::format("sync.kind = \"{}\": steps with slow ranks are simulated of replicas that agree in each",
                       name_of(spec.sync.kind)),
           "use --set sync.kind=full; `lockstep plan --machine` predicts the mean step");
  if (spec.layout.servers > 0)
    refuse("parameter servers: slow ranks are simulated of ranks that all compute",
           "use layout.dp_kind=ddp, which learns the same; `lockstep plan --machine` predicts the step with servers");
  SimulatedRun run{.spec = spec, .machine = machine, .asked = simulation_of(s)};
  check_extent(spec);
  require_machine(spec, machine);
  const RunData data(spec);
  const std::vector<Plan> stages = plan_stages(spec, data);
  run.predicted = predict_step(spec, machine, data, stages);
  run.steps = simulate_steps(world_script(spec, machine, KernelPrices(machine), data), spec.layout, machine, run.asked);
  run.month = month_of(s, run, stages);
  if (s.json)
    fmt::print("{}\n", simulation_json(run).dump(2));
  else
    fmt::print("{}", simulation_text(run));
  return static_cast<int>(ExitCode::done);
}

void add_options(CLI::App& command, SimulateSettings& s) {
  command.add_option("--slow", s.slow, "Slow ranks: their share, and how many times as long they compute [none]")
      ->type_name("SHARE%:FACTORx")
      ->allow_extra_args(false);
  command.add_option("--jitter", s.jitter, "By how much the times of phases vary: a standard deviation [0%]")
      ->type_name("SHARE%");
  command.add_option("--steps", s.steps, "Of --jitter: how many steps are drawn [3]")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("K");
  command.add_option("--seed", s.seed, "Of all that is random [1]")->type_name("N");
  command
      .add_option("--failures", s.failures,
                  "Mean hours between failures of one device; 0: none [as the machine's file says]")
      ->check(CLI::Range(0.0, 1e12).description(""))
      ->type_name("HOURS");
  command
      .add_option("--save-every", s.save_every,
                  "Steps between checkpoints [train.save_every; where that is 0, the best]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""))
      ->type_name("N");
  command.add_option("--days", s.days, "How long the run lasts [30]")
      ->check(CLI::Range(1e-3, 36500.0).description(""))
      ->type_name("DAYS");
  command.add_option("--repair", s.repair, "Hours until a failed node is back [0: it is used again at once]")
      ->check(CLI::Range(0.0, 1e6).description(""))
      ->type_name("HOURS");
  command
      .add_option("--spares", s.spares, "Of --repair: nodes beside the run's, each in the place of one that failed [0]")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1000000}).description(""))
      ->type_name("N");
  command.add_flag("--json", s.json,
                   "Print {step_seconds, plain_step_seconds, slowdown, exposed_seconds{…}, stages[…], …, goodput{…}}");
}

}  // namespace

void add_simulate(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  auto layout = std::make_shared<LayoutArguments>();
  auto machine = std::make_shared<MachineArguments>();
  auto settings = std::make_shared<SimulateSettings>();
  CLI::App* command =
      app.add_subcommand("simulate", "Simulate a run on a machine with slow ranks, jitter and failures");
  command->footer(
      "The run's own step on the clock of `plan --machine`, with some ranks slower than others: replicas that are "
      "alike "
      "are\nsimulated once, so 100,000 ranks take seconds. Then a month of it with failures, checkpoints and restarts: "
      "how much of\nthe time becomes steps that count, what the rest is lost to, and how often to save "
      "(docs/choosing.md).\n\n"
      "A checkpoint's time is the plan's bytes over the machine's host_link and disk_write. Restarts take its\n"
      "restart_seconds.\n\n"
      "Examples: lockstep simulate my.toml --layout dp=16,pp=4,tp=8,micro=8 --machine h100-sxm --nodes 64 --slow "
      "1%:1.5x\n"
      "          lockstep simulate my.toml --machine h100-sxm --jitter 3% --failures 20000 --save-every 100 --json");
  arguments->add_to(*command);
  layout->add_to(*command, kMostSimulatedRanks, "1");
  machine->add_to(*command)->required();
  add_options(*command, *settings);
  command->callback([arguments, layout, machine, settings, &chosen] {
    chosen = [arguments, layout, machine, settings] {
      arguments->takes_auto = true;
      const std::optional<MachineSpec> on = machine->read(*arguments);
      RunSpec spec = layout->read(*arguments);
      resolve_gathered(spec, on->memory);
      return show_simulation(*settings, spec, *on);
    };
  });
}

}  // namespace lockstep
