// The search for the first value that is not finite, after a step that did not update: runs the step's gradients again,
// with its own dropout masks, and looks at everything each action wrote.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/step_executor.h"

namespace lockstep {

class BadValueSearch {
 public:
  // No step is in flight. All of them outlive the search.
  BadValueSearch(RankSetup& setup, const RankState& state, StepExecutor& executor)
      : setup_(setup), state_(state), executor_(executor) {}

  // Of the batch that the executor has, which had this number: which tensor is the first to hold such a value, in the
  // order in which one rank would write them, and on which rank; nothing when all are finite. All ranks call it and are
  // told the same.
  std::optional<std::string> find(std::int64_t batch_number);

 private:
  std::vector<Slot> written_by(const Action& action) const;
  std::optional<std::string> bad_value_after(const Action& action) const;
  std::optional<std::string> earliest_of(std::int64_t place, const std::string& message);

  RankSetup& setup_;
  const RankState& state_;
  StepExecutor& executor_;
};

}  // namespace lockstep
