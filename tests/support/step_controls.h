// The scalars of a step as step_control leaves them, for tests that call an optimizer by hand.
#pragma once
#include <cmath>
#include <vector>

#include "kernels/step_control.h"

namespace lockstep::tests {

struct StepScalars {
  double rate;
  int step;
  double scale = 1, finite = 1;
  double beta1 = 0.9, beta2 = 0.999;
};

inline std::vector<double> step_controls(const StepScalars& s) {
  std::vector<double> all(kStepControls);
  all[kLearningRate] = s.rate;
  all[kStep] = s.step;
  all[kGradientScale] = s.scale;
  all[kFinite] = s.finite;
  all[kFirstCorrection] = 1 - std::pow(s.beta1, s.step);
  all[kSecondCorrection] = std::sqrt(1 - std::pow(s.beta2, s.step));
  return all;
}

}  // namespace lockstep::tests
