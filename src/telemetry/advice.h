// Which key of the run file would raise a low MFU, by where the time of the run's steps went.
//
// A rule looks at the largest share of the step that is not compute. From kLargeShare on it names the key that makes
// that share smaller; below, compute decides, and the key is one that makes the matrix products larger or fewer. Saves
// and evaluations are left out: MFU does not count them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "telemetry/time_account.h"

namespace lockstep {

// What the rules need to know of a run.
struct RunFacts {
  std::int64_t dp = 1, pp = 1, cp = 1, tp = 1, micro = 1, zero = 0;
  std::int64_t micro_batch = 1;  // samples of a rank's micro-batch
  std::int64_t seq = 1;          // tokens of a sample
  bool overlap = true, gpu = false, recompute = false;
};

struct Advice {
  TimeUse use = TimeUse::compute;  // that the time went to
  std::optional<double> share;     // of the step; nothing where times are not recorded
  std::string key;                 // "layout.overlap"; empty: none of the run file would help
  std::string text;                // one line: where the time went, and what to do
};

inline constexpr double kLargeShare = 0.15;
// With fewer tokens of a micro-batch on a rank than this, matrix products are too small to fill it.
constexpr std::int64_t fewest_tokens(bool gpu) { return gpu ? 8192 : 512; }

Advice mfu_advice(const TimesByUse& times, const RunFacts& run);

}  // namespace lockstep
