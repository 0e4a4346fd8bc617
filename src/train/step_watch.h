// Who watches a step go by, action by action: traces, and clocks of tests.
#pragma once
#include "spec/step/actions.h"

namespace lockstep {

class StepWatch {
 public:
  virtual ~StepWatch() = default;
  // In this order, of every action of the list: the rank comes to it and may be held; has what it needs; is done.
  virtual void comes_to(std::size_t index) = 0;
  virtual void runs(const Action& action) = 0;
  virtual void is_done_with(const Action& action) = 0;
  // Whether a stream that runs ahead is waited for after every action, so that what is seen is what happens; else the
  // watch asks the stream itself.
  virtual bool holds_stream() const { return true; }
};

}  // namespace lockstep
