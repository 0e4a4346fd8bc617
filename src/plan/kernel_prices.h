// How long each kernel takes on a machine of a machine file (spec/machine/machine_spec.h).
//
// A product or attention is as slow as its operations, at the share of the peak that its shape reaches, or as its
// bytes; every other kernel is as slow as its bytes, at the share of the copy rate that its kind reaches. To that comes
// what every launch costs.
#pragma once
#include "spec/machine/machine_spec.h"
#include "tensor/meta/kernel.h"

namespace lockstep {

class KernelPrices final : public meta::KernelPricer {
 public:
  // `threads`: of a rank, where ranks are threads that share cores; a device has one.
  explicit KernelPrices(const MachineSpec& machine, int threads = 1);
  // UserError (usage) where the machine has no peak of the operands' type.
  double seconds(const meta::Kernel& kernel) const override;

  double peak(DType dtype) const;
  double copy_rate(double bytes) const;  // bytes read and written per second of a kernel that touches that many

 private:
  const MachineSpec machine_;
  double threads_;
  std::array<double, meta::kKernelNames.size()> shares_;
};

}  // namespace lockstep
