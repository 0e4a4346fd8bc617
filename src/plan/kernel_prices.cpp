#include "plan/kernel_prices.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {

// The share that attention over this many keys reaches of what it would over endless ones; likewise of a head's width.
double filled(std::int64_t size, double half) { return static_cast<double>(size) / (static_cast<double>(size) + half); }

}  // namespace

KernelPrices::KernelPrices(const MachineSpec& machine, int threads) : machine_(machine), threads_(threads) {
  shares_.fill(1);
  for (const auto& [name, share] : machine.kernels) {
    const auto at = std::ranges::find(meta::kKernelNames, name);
    LOCKSTEP_CHECK(at != meta::kKernelNames.end(), "no kind of kernel is called {}", name);
    shares_[static_cast<std::size_t>(at - meta::kKernelNames.begin())] = share;
  }
}

double KernelPrices::peak(DType dtype) const {
  const MachineSpec::Peaks& p = machine_.peaks;
  const double peak = dtype == DType::f64    ? p.fp64
                      : dtype == DType::bf16 ? p.bf16
                      : dtype == DType::f16  ? p.fp16
                                             : p.fp32;
  if (peak <= 0)
    throw UserError(ExitCode::usage,
                    fmt::format("machine {} says nothing of products in {}", machine_.name, name_of(dtype)),
                    fmt::format("add peaks.{} to its file, or use another precision.compute", name_of(dtype)));
  return peak * threads_;
}

double KernelPrices::copy_rate(double bytes) const { return machine_.rate_of_copy(bytes / threads_) * threads_; }

double KernelPrices::seconds(const meta::Kernel& kernel) const {
  const auto bytes = static_cast<double>(kernel.read + kernel.written), flops = static_cast<double>(kernel.flops);
  const double share = shares_[static_cast<std::size_t>(kernel.kind)];
  const double moved = bytes > 0 ? bytes / (copy_rate(bytes) * share) : 0;
  const auto& attention = machine_.attention;
  switch (kernel.kind) {
    case meta::KernelKind::product: {
      const double rate =
          peak(kernel.dtype) * machine_.products.share(static_cast<double>(kernel.m), static_cast<double>(kernel.n),
                                                       static_cast<double>(kernel.k));
      return std::max(flops / rate, moved) + machine_.launch;
    }
    case meta::KernelKind::attention_forward:
    case meta::KernelKind::attention_backward: {
      const bool forward = kernel.kind == meta::KernelKind::attention_forward;
      const double rate = peak(kernel.dtype) * (forward ? attention.forward : attention.backward) *
                          filled(kernel.k, attention.half_pairs) * filled(kernel.head_width, attention.half_width);
      const double scores = static_cast<double>(kernel.m) * static_cast<double>(kernel.n) *
                            static_cast<double>(kernel.k) *
                            (forward ? attention.forward_scores : attention.backward_scores);
      const double passed = scores > 0 ? scores / copy_rate(scores) : 0;
      return std::max(flops / rate, moved) + passed + machine_.launch;
    }
    default:
      return moved + machine_.launch;
  }
}

}  // namespace lockstep
