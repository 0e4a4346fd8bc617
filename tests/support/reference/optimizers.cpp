#include "kernels/step_control.h"
#include "support/reference_ops.h"

namespace lockstep::tests::reference {

void adamw(HostTensor& master, HostTensor* weight, HostTensor& m, HostTensor& v, const HostTensor& gradient,
           const HostTensor& control, const OptimizerOptions& options) {
  if (control[kFinite] == 0) return;
  const double lr = control[kLearningRate], step = control[kStep];
  const double correction1 = 1 - std::pow(options.beta1, step), correction2 = 1 - std::pow(options.beta2, step);
  for (std::int64_t i = 0; i < master.elements(); ++i) {
    const double g = gradient[i] * control[kGradientScale];
    Sum first, second, p;
    first.add(options.beta1 * m[i]);
    first.add((1 - options.beta1) * g);
    second.add(options.beta2 * v[i]);
    second.add((1 - options.beta2) * g * g);
    p.add(master[i]);
    if (i < options.decayed) p.add(-lr * options.decay * master[i]);
    const double denominator = std::sqrt(second.value) / std::sqrt(correction2) + options.eps;
    p.add(-lr / correction1 * first.value / denominator, lr / correction1 * first.size / denominator);
    m.set(i, first.value, first.size);
    v.set(i, second.value, second.size);
    master.set(i, p.value, p.size);
    if (weight) weight->set(i, p.value, p.size);
  }
}

void sgd(HostTensor& master, HostTensor* weight, HostTensor* momentum, const HostTensor& gradient,
         const HostTensor& control, const OptimizerOptions& options) {
  if (control[kFinite] == 0) return;
  const double lr = control[kLearningRate];
  for (std::int64_t i = 0; i < master.elements(); ++i) {
    Sum g;
    g.add(gradient[i] * control[kGradientScale]);
    if (i < options.decayed) g.add(options.decay * master[i]);
    if (momentum) {
      g.add(options.beta1 * (*momentum)[i]);
      momentum->set(i, g.value, g.size);
    }
    Sum p;
    p.add(master[i]);
    p.add(-lr * g.value, lr * g.size);
    master.set(i, p.value, p.size);
    if (weight) weight->set(i, p.value, p.size);
  }
}

}  // namespace lockstep::tests::reference
