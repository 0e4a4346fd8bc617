// How an engineer would choose a layout, question by question: does it fit one device, is one device fast enough, tp
// inside a node, cp for long samples, pp between nodes, ZeRO and recomputation for the rest of the memory, and the
// number of micro-batches. Each answer has its numbers.
//
// An option's number is the best step time that any layout with that answer, and the answers before it, is composed to
// (plan/composed_step.h) among those that fit. The last answers, and the result, are planned and timed in full.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plan/layout_search.h"

namespace lockstep {

struct WalkStep {
  std::string question;
  std::vector<std::string> numbers;  // a line each
  std::string answer;
};

struct LayoutWalk {
  std::vector<WalkStep> steps;
  std::optional<TimedLayout> result;  // none: nothing fits
};

LayoutWalk walk_layouts(LayoutTimer& timer, const ComposedSpace& space);

// Where nothing fits: the least that any layout needs, and how many nodes of this kind would do, if any number does.
struct Missing {
  TimedLayout smallest;
  std::optional<std::int64_t> nodes;
};
std::optional<Missing> what_is_missing(const RunSpec& run, const MachineSpec& machine, const RunData& data);

}  // namespace lockstep
