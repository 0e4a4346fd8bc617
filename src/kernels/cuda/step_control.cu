#include "kernels/step_control.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_bins.cuh"

namespace lockstep::cuda {

namespace {

struct StepNumbers {
  double clip, beta1, beta2;
  bool halt;
};

__global__ void step_control_kernel(double* control, const std::int64_t* bins, const StepNumbers numbers) {
  const double norm = sqrt(total_of(bins));
  control[kNorm] = norm;
  if (numbers.halt && !isfinite(norm)) control[kHalted] = 1;
  control[kFinite] = isfinite(norm) && control[kHalted] == 0 ? 1 : 0;
  control[kStep] += control[kFinite];
  control[kFirstCorrection] = 1 - pow(numbers.beta1, control[kStep]);
  control[kSecondCorrection] = sqrt(1 - pow(numbers.beta2, control[kStep]));
  const double factor = numbers.clip / (norm + 1e-6);
  control[kGradientScale] = numbers.clip > 0 && factor < 1 ? factor : 1;  // a norm that is not a number scales by 1
}

}  // namespace

void step_control(const StepControlArgs& a, lockstep::Stream& stream) {
  step_control_kernel<<<1, 1, 0, native(stream)>>>(
      a.control.data<double>(), a.bins.data<std::int64_t>(),
      {.clip = a.clip, .beta1 = a.beta1, .beta2 = a.beta2, .halt = a.halt});
  check_launch("step_control");
}

}  // namespace lockstep::cuda
