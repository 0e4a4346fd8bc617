// What a mask step does to the memory of a rank (train/mask_steps.h).
#pragma once
#include <cstdint>

namespace lockstep {

struct Relayout {
  std::int64_t steps = 0;              // training steps before it
  double share = 0;                    // of each matrix that is masked from here on
  std::int64_t before = 0, after = 0;  // bytes of optimizer state; on meta `after` is the most that there may be
  std::int64_t evenly = 0;             // after, if what stays is spread evenly over ranks; on meta alone
  double seconds = 0;
};

}  // namespace lockstep
