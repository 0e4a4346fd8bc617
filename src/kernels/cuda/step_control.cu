#include "kernels/step_control.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_bins.cuh"

namespace lockstep::cuda {

namespace {

struct Rule {
  double clip, beta1, beta2;
  bool halt;
  std::int64_t growth;
  int most_exponent;
};

__global__ void step_control_kernel(double* control, const std::int64_t* bins, Rule rule) {
  const int exponent = static_cast<int>(control[kLossExponent]);
  const double norm = ldexp(sqrt(total_of(bins)), -exponent);
  const bool finite = isfinite(norm), overflow = !finite && rule.growth > 0 && exponent > 0;
  control[kNorm] = norm;
  if (rule.halt && !finite && !overflow) control[kHalted] = 1;
  const bool halted = control[kHalted] != 0, updates = finite && !halted;
  control[kFinite] = updates ? 1 : 0;
  control[kStep] += control[kFinite];
  control[kFirstCorrection] = 1 - pow(rule.beta1, control[kStep]);
  control[kSecondCorrection] = sqrt(1 - pow(rule.beta2, control[kStep]));
  const double factor = rule.clip / (norm + 1e-6);
  const double clipped = rule.clip > 0 && factor < 1 ? factor : 1;  // a norm that is not a number scales by 1
  control[kGradientScale] = ldexp(clipped, -exponent);
  if (rule.growth == 0 || halted) return;
  if (overflow) {
    control[kLossExponent] = exponent - 1;
    control[kScaledSteps] = 0;
  } else if (updates && ++control[kScaledSteps] >= static_cast<double>(rule.growth)) {
    control[kLossExponent] = exponent < rule.most_exponent ? exponent + 1 : rule.most_exponent;
    control[kScaledSteps] = 0;
  }
}

template <class T>
__global__ void scale_loss_kernel(T* scaled, const T* weight, const double* control) {
  scaled[0] = static_cast<T>(ldexp(static_cast<double>(weight[0]), static_cast<int>(control[kLossExponent])));
}

template <class T>
void launch_scale_loss(const ScaleLossArgs& a, lockstep::Stream& stream) {
  scale_loss_kernel<<<1, 1, 0, native(stream)>>>(a.scaled.data<T>(), a.weight.data<T>(), a.control.data<double>());
  check_launch("scale_loss");
}

}  // namespace

void step_control(const StepControlArgs& a, lockstep::Stream& stream) {
  step_control_kernel<<<1, 1, 0, native(stream)>>>(a.control.data<double>(), a.bins.data<std::int64_t>(),
                                                   Rule{a.clip, a.beta1, a.beta2, a.halt, a.growth, a.most_exponent});
  check_launch("step_control");
}

void scale_loss(const ScaleLossArgs& a, lockstep::Stream& stream) {
  if (a.weight.dtype() == DType::f64) return launch_scale_loss<double>(a, stream);
  launch_scale_loss<float>(a, stream);
}

}  // namespace lockstep::cuda
