// The learning rate of a step: a pure function of the step, so that a resumed run has the rates of an unbroken one.
//
// Warm-up: step s (from 0) of the first W = warmup has peak·(s + 1)/W, so step W − 1 is at the peak; without a warm-up
// step 0 is. From there:
//   constant  the peak to the end
//   linear    a straight line to final·peak at the last step
//   cosine    half a cosine from the peak to final·peak at the last step
//   wsd       the peak until `decay` steps are left, then a straight line to final·peak at the last step
// A warm-up as long as the run or longer leaves no room to fall, so there is no fall; a run of one step without a
// longer warm-up is at the peak. wsd's decay begins no earlier than the warm-up ends. A step past the end has the last
// rate.
//
// Thread safe. ProgramError when step is negative, steps below 1 or a length of the schedule negative.
#pragma once
#include <cstdint>

#include "spec/run/learning_rate_spec.h"

namespace lockstep {

double learning_rate(const LearningRateSpec& schedule, double peak, std::int64_t step /* from 0 */, std::int64_t steps);

}  // namespace lockstep
