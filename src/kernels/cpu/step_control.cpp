#include "kernels/step_control.h"

#include <cmath>

#include "kernels/norm_sum.h"

namespace lockstep::cpu {

void step_control(const StepControlArgs& a, lockstep::Stream&) {
  double* control = a.control.data<double>();
  const double norm = std::sqrt(norm_total({a.bins.data<std::int64_t>(), kNormBins}));
  control[kNorm] = norm;
  if (a.halt && !std::isfinite(norm)) control[kHalted] = 1;
  control[kFinite] = std::isfinite(norm) && control[kHalted] == 0 ? 1 : 0;
  control[kStep] += control[kFinite];
  control[kFirstCorrection] = 1 - std::pow(a.beta1, control[kStep]);
  control[kSecondCorrection] = std::sqrt(1 - std::pow(a.beta2, control[kStep]));
  control[kGradientScale] = a.clip > 0 ? std::min(1.0, a.clip / (norm + 1e-6)) : 1.0;
}

}  // namespace lockstep::cpu
