// One run under each lever that lowers memory, and under the usual combinations of them: what each holds where, moves
// and takes.
//
// The run's layout stays, and so do its micro-batches and types, but for those that a lever changes. "none" is the run
// with [memory] as by default. All of them are tried in turn, in rounds, as layouts are (plan/comparison.h); one that
// needs more memory than there is, or than is allowed, is planned and not run. Nothing is saved or evaluated.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/comparison.h"

namespace lockstep {

struct Lever {
  std::vector<std::string> changes;  // "memory.recompute=full", as --set takes them; none: "none"
  RunSpec run;
  bool changes_numbers = false;             // what is learned is not the same to the bit
  std::optional<std::size_t> without = {};  // of one that offloads: which of the list is the same without
  std::string name() const;                 // "recompute=full + micro=4"
};

// "none", each lever alone that the run can have, and combinations. What a run file could not say is left out.
std::vector<Lever> usual_levers(const RunSpec& run);

struct ComparedLever {
  Lever lever;
  Plan plan;                               // of the rank that needs most
  std::optional<ComparedLayout> ran = {};  // none: it was not run
  std::string why_not = {};                // it does not fit
  std::optional<bool> needed = {};         // of one that offloads: the same without does not fit
};

struct LeverComparison {
  std::vector<ComparedLever> levers;
  bool stopped = false;  // before all of them had been tried
  bool ok() const;       // all that ran are as planned
  // Of the tokens per second of the first that ran, which is "none" where that fits.
  const ComparedLever* first() const;
  std::optional<double> relative(const ComparedLever& of) const;
};

// `begins` is called with a name before each of each round. The options' process, link and forecasts are not used.
LeverComparison compare_levers(const RunSpec& run, const ComparisonOptions& options,
                               const std::function<void(const std::string&)>& begins = {});

}  // namespace lockstep
