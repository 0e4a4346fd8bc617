#include "cli/bench_update.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/update_bench.h"
#include "plan/plan.h"
#include "telemetry/number_text.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

struct BenchUpdateSettings {
  std::int64_t elements = 32;  // Mi
  int threads = 0;
  int rounds = 5;
  bool json = false;
};

int run_bench_update(const BenchUpdateSettings& s) {
  const std::int64_t elements = s.elements << 20;
  if (const std::int64_t needed = 20 * elements, free = available_memory(); needed > free)
    throw UserError(ExitCode::does_not_fit,
                    fmt::format("the tensors need {} and {} are free", byte_text(needed), byte_text(free)),
                    "use a smaller --size");
  const int threads = s.threads > 0 ? s.threads : usable_cores();
  const UpdateBench bench = measure_updates({.elements = elements, .threads = threads, .rounds = s.rounds});
  if (s.json) {
    nlohmann::ordered_json out{{"threads", threads},
                               {"in_place", bench.in_place},
                               {"triad", bench.triad},
                               {"rows", nlohmann::ordered_json::array()}};
    for (const UpdateRow& row : bench.rows)
      out["rows"].push_back({{"types", row.types},
                             {"bytes_per_element", row.bytes_an_element},
                             {"value", row.rate},
                             {"ceiling", row.ceiling},
                             {"ratio", row.ratio()}});
    fmt::print("{}\n", out.dump(2));
    return static_cast<int>(ExitCode::done);
  }
  fmt::print("{:<52} {:>6} {:>12} {:>12} {:>7}\n", fmt::format("AdamW, {} threads", threads), "bytes", "value",
             "ceiling", "ratio");
  for (const UpdateRow& row : bench.rows)
    fmt::print("{:<52} {:>6} {:>7.1f} GB/s {:>7.1f} GB/s {:>7.2f}\n", row.types, row.bytes_an_element, row.rate / 1e9,
               row.ceiling / 1e9, row.ratio());
  fmt::print("memory: {:.1f} GB/s changed in place, {:.1f} GB/s of a triad\n", bench.in_place / 1e9, bench.triad / 1e9);
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_bench_update(CLI::App& bench, std::function<int()>& chosen) {
  auto s = std::make_shared<BenchUpdateSettings>();
  CLI::App* command = bench.add_subcommand("update", "Measure AdamW on the host's cores beside its memory");
  command->footer(
      "As memory.offload_update=host uses it: masters, moments and gradients in the host's memory. The ceiling is the\n"
      "better of two passes over as much memory, on the same threads, in turn with it. The best of all rounds "
      "counts.\n\n"
      "Example: lockstep bench update --threads 8");
  command->add_option("--size", s->elements, "Mi elements of each tensor [32]")
      ->check(CLI::Range(1, 1 << 16).description(""))
      ->type_name("MI");
  command->add_option("--threads", s->threads, "Threads [all cores]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  command->add_option("--rounds", s->rounds, "Times that each is measured [5]")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  command->add_flag("--json", s->json, "Print {threads, in_place, triad, rows}, in bytes per second");
  command->callback([s, &chosen] { chosen = [s] { return run_bench_update(*s); }; });
}

}  // namespace lockstep
