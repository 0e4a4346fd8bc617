#include "cli/bench.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"
#include "bench/step_bench.h"
#include "checkpoint/disk.h"
#include "cli/bench_comm.h"
#include "cli/bench_disk.h"
#include "cli/bench_machine.h"
#include "cli/bench_update.h"
#include "cli/run_arguments.h"
#include "plan/plan.h"
#include "spec/text/text_input.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

struct BenchSettings {
  RunArguments run;
  int rounds = 8;
  bool json = false;
  std::string tune;
};

// What the file holds for the same GPU and library stays, so that the forms of several models come together in it.
void keep_tuning(const std::string& file, TuningSpec tuning) {
  if (std::filesystem::exists(file)) {
    const TuningSpec before = parse_tuning_toml(read_text_file(file, 1 << 20, ExitCode::usage), file);
    if (before.gpu == tuning.gpu && before.library == tuning.library)
      tuning.products.insert(before.products.begin(), before.products.end());
  }
  const std::string text = "# Algorithms of matrix products, timed by `lockstep bench --tune`.\n" + to_toml(tuning);
  replace_file(Disk(), file, [&](DiskFile& out) { out.write(text.data(), std::ssize(text)); });
}

int run_bench_command(const BenchSettings& s) {
  RunSpec spec = s.run.read();
  spec.train.save_last = false;  // nothing is saved, so that nothing is held for it
  spec.train.save_every = 0;
  if (!s.tune.empty() && device_of(spec) != Device::cuda)
    throw UserError(ExitCode::usage, "--tune times the products of a GPU", "use it with --set run.device=cuda");
  if (!s.tune.empty()) {
    require_output_file(s.tune, fmt::format("--tune {}", quote_text(s.tune)));
    spec.run.autotune = true;
  }
  require_fit(spec, plan_run(spec), available_memory(device_of(spec)));
  const Bench bench = run_bench(spec, s.rounds);
  const std::vector<BenchItem>& items = bench.items;
  if (!s.tune.empty()) keep_tuning(s.tune, bench.tuning);
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
  fmt::print("{:<24} {:>12} {:<10} {:>12} {:>7}\n", "", "value", "", "ceiling", "ratio");
  for (const BenchItem& item : items) {
    fmt::print("{:<24} {:>12.1f} {:<10}", item.name, item.value, item.unit);
    if (item.ceiling > 0) fmt::print(" {:>12.1f} {:>7.2f}", item.ceiling, item.ratio());
    fmt::print("\n");
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_bench(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<BenchSettings>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure kernels and the step of a run beside the machine's ceilings");
  command->footer(
      "Products and attention are held to multiply-adds in registers (on a GPU, to one large product), the rest to\n"
      "copying memory, and the step's useful work to the rate of its weights' products run alone. Its time is held to\n"
      "its floor: products and attention at their times alone, all other bytes at the speed of a copy. Steps and\n"
      "products alternate; medians are printed.\n\n"
      "Example: lockstep bench --set model.preset=bench-a --set data.seq=256 --set train.global_batch=8");
  s->run.add_to(*command);
  command->add_option("--rounds", s->rounds, "Steps that are timed [8]")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  command
      ->add_option("--tune", s->tune,
                   "Time algorithms for the products of a GPU, and add the fastest to this file (as configs/tuning/)")
      ->type_name("FILE");
  command->add_flag("--json", s->json, "Print [{name, value, unit, ceiling, ratio}]");
  add_bench_comm(*command, chosen);
  add_bench_disk(*command, chosen);
  add_bench_machine(*command, chosen);
  add_bench_update(*command, chosen);
  command->callback([s, command, &chosen] {
    if (command->get_subcommands().empty()) chosen = [s] { return run_bench_command(*s); };
  });
}

}  // namespace lockstep
