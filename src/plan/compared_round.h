// What one rank of a comparison has measured in a round of steps, and as text: ranks that are processes tell the
// others.
#pragma once
#include <string>
#include <vector>

#include "plan/comparison.h"
#include "plan/step_spans.h"

namespace lockstep {

struct ComparedRound {
  ComparedRank rank;                        // without its medians
  std::vector<double> step, exposed;        // seconds of each step that counts
  std::vector<StepSpans::Step> spans = {};  // of a pipeline: of each step, the first one too
  double loss = 0;                          // of the last step
};

// The same bits come back from it.
std::string to_text(const ComparedRound& round);
ComparedRound compared_round(const std::string& text);

}  // namespace lockstep
