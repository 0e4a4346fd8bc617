// The cheapest settings under which each rank of a run fits into given memory: `plan --fit`, and what a refusal
// proposes.
//
// Candidates are combinations of levers from the run's own values on: train.async_save = false, more micro-batches,
// ZeRO 1 to 3, memory.recompute; then, only where nothing of these fits, bf16 state, if it is allowed to change numbers
// (gradients, then moments, then masters: as few as needed); then, only where that does not fit either, a quarter,
// half, three quarters or all of the optimizer's state offloaded, or activations, or both; then the same with smaller
// windows of state; then, by the same shares and windows, gradients beside it, or weights, which need ZeRO 3 and get it
// on one rank too, or both. What is offloaded goes to the host beside a GPU, and to a disk otherwise. Within such a
// tier the least predicted time wins (plan/fit_rates.h). Bytes and counts are those of a plan on meta, for each
// candidate that is looked at.
//
// Not all are: more micro-batches never need more memory, nor is any lever but ZeRO and a pipeline's micro-batches ever
// faster than without it (tests/plan/fit_search_test.cpp compares with all combinations). Of a level that recomputes
// products, as few blocks are named as are needed, and of activations that are offloaded too.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "plan/fit_rates.h"
#include "spec/run/run_spec.h"
#include "tensor/ledger.h"

namespace lockstep {

// Bytes of each rank.
struct FitLimits {
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t device = kNone;
  std::int64_t host = kNone;  // of a GPU's run
  std::int64_t disk = kNone;
};

// A candidate, planned.
struct FitSetting {
  std::vector<std::string> changes;                        // "layout.micro=4", as --set takes them; none: as asked
  int tier = 0;                                            // 0, or how late it is tried
  std::int64_t device = 0, host = 0, disk = 0, moved = 0;  // bytes of the fullest rank; the last, per step
  std::array<std::int64_t, kTags> peaks{};                 // of the rank that takes most of its device
  double seconds = 0;                                      // predicted, per step
  bool fits = false;

  Tag largest_tag() const;
  std::string text() const;  // "--set layout.micro=4 --set layout.zero=1"; "as asked"
};

struct FitResult {
  FitSetting asked;
  std::optional<FitSetting> cheapest;  // as asked, where that fits
  std::vector<FitSetting> too_large;   // that were planned, would be preferred, and do not fit; in that order
  FitSetting least;                    // of all that were planned, what needs least of its device
  int planned = 0;
};

// `change_numbers`: bf16 state may be proposed.
FitResult search_fit(const RunSpec& asked, const FitLimits& limits, const FitRates& rates, bool change_numbers = false);

// What a refusal proposes: "--set layout.micro=4 --set train.async_save=false fits: 1.2 GiB". Nothing where no setting
// helps. What is learned stays the same.
std::optional<std::string> settings_that_fit(const RunSpec& asked, const FitLimits& limits);

}  // namespace lockstep
