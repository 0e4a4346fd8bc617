// What one training step did, and the line of metrics.jsonl that says so.
//
// A line is one JSON object: step, loss, loss_z, grad_norm, lr, step_ms, tokens_per_s, model_flops_per_s, mfu, updated,
// bytes{tag}, peak_bytes{tag}, time; numbers at full precision, null where a number is not finite or not known. An
// evaluation is a line {step, eval_loss, time}.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Bytes by tag, in the ledger's order.
using BytesByTag = std::vector<std::pair<std::string, std::int64_t>>;

struct StepRecord {
  std::int64_t step = 0;  // steps done, this one included
  double loss = 0;
  std::optional<double> loss_z =
      {};  // standard deviations from the mean of the losses before; nothing while there are few
  double grad_norm = 0;
  double lr = 0;
  double seconds = 0;
  double tokens_per_s = 0;
  double model_flops_per_s = 0;
  std::optional<double> mfu = {};  // nothing when the machine's peak is not known
  bool updated = true;
  BytesByTag bytes, peak_bytes;
  double time = 0;  // seconds since 1970
};

struct EvalRecord {
  std::int64_t step = 0;
  double loss = 0;
  double time = 0;
};

std::string to_json_line(const StepRecord& record);
std::string to_json_line(const EvalRecord& record);

double seconds_since_1970();

}  // namespace lockstep
