// A run folder written by hand, with numbers that a test knows.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep::tests {

inline double written_loss(std::int64_t step) { return 4.0 / std::sqrt(static_cast<double>(step)) + 0.125; }

inline std::string written_step(std::int64_t step, double loss) {
  return fmt::format(
      R"({{"step": {}, "loss": {}, "loss_z": null, "grad_norm": {}, "lr": 0.001, "step_ms": 250.5, "tokens_per_s": 4096.25, )"
      R"("model_flops_per_s": 1e9, "mfu": 0.375, "updated": true, "bytes": {{"weights": 1000}}, "peak_bytes": {{"weights": 1000, )"
      R"("activations": 500}}, "time": {}, "uses": {{"compute": {{"mean_ms": 200, "max_ms": 210, "rank": 1}}, "wait_dp": )"
      R"({{"mean_ms": 50, "max_ms": 60, "rank": 0}}}}, "slowest_rank": 1, "sent": {{"dp": {{"calls": 3, "bytes": 96}}}}}})",
      step, loss, 1 + 0.5 / static_cast<double>(step), 1.7e9 + 0.25 * static_cast<double>(step));
}

// A folder with that many steps, an evaluation at the end, and ranks with records of their own.
inline void write_run(const std::filesystem::path& folder, std::int64_t steps, int ranks = 2) {
  std::filesystem::create_directories(folder / "ranks");
  std::ofstream metrics(folder / "metrics.jsonl");
  for (std::int64_t step = 1; step <= steps; ++step) metrics << written_step(step, written_loss(step)) << '\n';
  metrics << fmt::format(R"({{"step": {}, "eval_loss": 1.0625, "eval_accuracy": 0.3125, "time": 1.7e9}})", steps)
          << '\n';
  for (int rank = 0; rank < ranks; ++rank) {
    std::ofstream records(folder / "ranks" / fmt::format("rank-{:05}.jsonl", rank));
    for (std::int64_t step = 1; step <= std::min<std::int64_t>(steps, 60); ++step)
      records
          << fmt::format(
                 R"({{"step": {}, "ms": 250, "uses": {{"compute": {}, "wait_dp": {}}}, "bytes": {{"weights": 1000}}, "peak_bytes": {{"weights": {}, "activations": 500}}}})",
                 step, 200 + rank % 7, 50 - rank % 7, 1000 + rank)
          << '\n';
  }
  std::ofstream(folder / "plan.json") << fmt::format(
      R"({{"layout": "dp={0}", "ranks": {0}, "steps": {1}, "parameters": 12345, "memory": [{{"rank": 0, "peak": 1400, "bytes": {{"weights": 1000, "activations": 400}}}}]}})",
      ranks, steps);
}

}  // namespace lockstep::tests
