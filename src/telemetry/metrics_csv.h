// metrics.jsonl as comma-separated values (RFC 4180).
//
// One row for each whole line, steps and evaluations in their order, after a row of names. Fields of objects within a
// line have names with points: uses.compute.mean_ms, bytes.weights. The usual fields come first, always and in the
// order of kMetricsColumns, then others in the order in which the file first has them. Numbers are copied digit for
// digit; null, and a field that a line lacks, is an empty cell. Rows end with CR LF.
//
// Left out are a last line without an end, which a run may be writing, and lines that are no objects with a "step".
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace lockstep {

inline constexpr std::array<std::string_view, 13> kMetricsColumns = {
    "step",    "loss",      "loss_z",        "grad_norm", "lr", "step_ms", "tokens_per_s", "mfu", "model_flops_per_s",
    "updated", "eval_loss", "eval_accuracy", "time"};

struct MetricsCsvCounts {
  std::int64_t rows = 0, left_out = 0;  // whole lines that are no records
};

// Reads the file twice, a line at a time, and gives `write` a row at a time. UserError (bad_input_file) when it cannot
// be read.
MetricsCsvCounts write_metrics_csv(const std::filesystem::path& metrics,
                                   const std::function<void(std::string_view)>& write);

}  // namespace lockstep
