// What a mask step does to the memory of a rank (train/mask_steps.h).
#pragma once
#include <cstdint>

namespace lockstep {

struct Relayout {
  std::int64_t steps = 0;              // training steps before it
  double share = 0;                    // of each matrix that is masked from here on
  std::int64_t before = 0, after = 0;  // bytes of optimizer state
  double seconds = 0;
};

}  // namespace lockstep
