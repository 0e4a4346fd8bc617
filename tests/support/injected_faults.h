// Deliberate errors of a given relative size in what a layout computes, to learn which of them are noticed.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "spec/run/run_spec.h"
#include "train/trial_steps.h"

namespace lockstep::tests {

enum class FaultIn {
  gradient,          // a whole tensor, on every rank that holds a part of it
  gradient_element,  // one element of it
  weight,            // a whole tensor after the update
  weight_element,
  contribution,          // everything that rank 1 gives to a sum over ranks, or sends
  contribution_element,  // the first element of each such message
};
inline constexpr FaultIn kFaults[] = {FaultIn::gradient,     FaultIn::gradient_element,
                                      FaultIn::weight,       FaultIn::weight_element,
                                      FaultIn::contribution, FaultIn::contribution_element};
std::string name_of(FaultIn fault);

// Values times (1 + size), in the second step (of messages in every step), under every layout that has more than one
// rank. Of the tensor's elements the middle one. `changed` is set when a value that was not zero has changed.
TrialFaults fault(FaultIn where, double size, const std::string& tensor, std::atomic<bool>& changed);

// A run of that model and seed for `verify`, of 8 samples.
RunSpec trial_run(const ModelSpec& model, std::int64_t seq, std::uint64_t seed, Precision precision);

}  // namespace lockstep::tests
