// How well the step times of many layouts were predicted: their errors, and whether the predicted order is of use.
#pragma once
#include <string>
#include <vector>

namespace lockstep {

struct ScoredLayout {
  std::string name;
  double predicted = 0, measured = 0;  // seconds of a step
  double repeatability = 0;            // what the layout differs from itself, over its time (plan/comparison.h)
  double error() const { return predicted / measured - 1; }
};

struct LayoutScore {
  double median_error = 0, worst_error = 0;  // without their signs
  std::size_t worst = 0;                     // whose it is
  // Layouts whose error is above `kMostError` and above twice their own repeatability.
  std::vector<std::size_t> beyond = {};
  std::vector<std::size_t> first = {};  // the three that are predicted to be fastest, the fastest first
  double first_over_fastest = 0;        // the fastest of these, measured, over the fastest of all, less 1
  static constexpr double kMostError = 0.2;
};

// Of one or more layouts, all measured.
LayoutScore score_layouts(const std::vector<ScoredLayout>& layouts);

// "prediction: median error 4.1%, worst …", three lines.
std::string score_text(const std::vector<ScoredLayout>& layouts);

}  // namespace lockstep
