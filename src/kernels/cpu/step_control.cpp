#include "kernels/step_control.h"

#include <algorithm>
#include <cmath>

#include "kernels/norm_sum.h"

namespace lockstep::cpu {

void step_control(const StepControlArgs& a, lockstep::Stream&) {
  double* control = a.control.data<double>();
  const int exponent = static_cast<int>(control[kLossExponent]);
  const double norm = std::ldexp(std::sqrt(norm_total({a.bins.data<std::int64_t>(), kNormBins})), -exponent);
  const bool finite = std::isfinite(norm), overflow = !finite && a.growth > 0 && exponent > 0;
  control[kNorm] = norm;
  if (a.halt && !finite && !overflow) control[kHalted] = 1;
  const bool halted = control[kHalted] != 0, updates = finite && !halted;
  control[kFinite] = updates ? 1 : 0;
  control[kStep] += control[kFinite];
  control[kFirstCorrection] = 1 - std::pow(a.beta1, control[kStep]);
  control[kSecondCorrection] = std::sqrt(1 - std::pow(a.beta2, control[kStep]));
  const double clipped = a.clip > 0 ? std::min(1.0, a.clip / (norm + 1e-6)) : 1.0;
  control[kGradientScale] = std::ldexp(clipped, -exponent);
  if (a.growth == 0 || halted) return;
  if (overflow) {
    control[kLossExponent] = exponent - 1;
    control[kScaledSteps] = 0;
  } else if (updates && ++control[kScaledSteps] >= static_cast<double>(a.growth)) {
    control[kLossExponent] = std::min(exponent + 1, a.most_exponent);
    control[kScaledSteps] = 0;
  }
}

void scale_loss(const ScaleLossArgs& a, lockstep::Stream&) {
  const int exponent = static_cast<int>(a.control.data<double>()[kLossExponent]);
  if (a.weight.dtype() == DType::f64)
    a.scaled.data<double>()[0] = std::ldexp(a.weight.data<double>()[0], exponent);
  else
    a.scaled.data<float>()[0] = std::ldexp(a.weight.data<float>()[0], exponent);
}

}  // namespace lockstep::cpu
