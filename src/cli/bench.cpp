#include "cli/bench.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/run_arguments.h"
#include "plan/bench.h"
#include "plan/plan.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

struct Settings {
  RunArguments run;
  int rounds = 8;
  bool json = false;
};

int run_bench_command(const Settings& s) {
  const RunSpec spec = s.run.read();
  if (device_of(spec) != Device::cpu)
    throw UserError(ExitCode::usage, "bench measures the cpu alone in this version", "use --set run.device=cpu");
  require_fit(spec, plan_run(spec), available_memory());
  const std::vector<BenchItem> items = run_bench(spec, s.rounds);
  if (s.json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const BenchItem& item : items) {
      const auto known = [&](double value) { return item.ceiling > 0 ? nlohmann::ordered_json(value) : nullptr; };
      out.push_back({{"name", item.name},
                     {"value", item.value},
                     {"unit", item.unit},
                     {"ceiling", known(item.ceiling)},
                     {"ratio", known(item.ratio())}});
    }
    fmt::print("{}\n", out.dump(2));
    return static_cast<int>(ExitCode::done);
  }
  fmt::print("{:<20} {:>12} {:<10} {:>12} {:>7}\n", "", "value", "", "ceiling", "ratio");
  for (const BenchItem& item : items) {
    fmt::print("{:<20} {:>12.1f} {:<10}", item.name, item.value, item.unit);
    if (item.ceiling > 0) fmt::print(" {:>12.1f} {:>7.2f}", item.ceiling, item.ratio());
    fmt::print("\n");
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_bench(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<Settings>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure kernels and the step of a run beside the machine's ceilings");
  command->footer(
      "Products and attention are held to multiply-adds in registers, the rest to copying memory, and the step's "
      "useful\n"
      "work to the rate of its weights' products run alone. Steps and products alternate; medians are printed.\n\n"
      "Example: lockstep bench --set model.preset=bench-a --set data.seq=256 --set train.global_batch=8");
  s->run.add_to(*command);
  command->add_option("--rounds", s->rounds, "Steps that are timed [8]")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  command->add_flag("--json", s->json, "Print [{name, value, unit, ceiling, ratio}]");
  command->callback([s, &chosen] { chosen = [s] { return run_bench_command(*s); }; });
}

}  // namespace lockstep
