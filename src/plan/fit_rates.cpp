#include "plan/fit_rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cpu/ceilings.h"
#include "plan/machine.h"
#include "spec/pipeline/clock.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

// One core of bench/results/2026-11-15-kernels.md: two did 350 GFLOP/s and copied 26 GB/s.
constexpr double kCoreFlops = 175e9, kCoreBytes = 13e9;
// An H200 (bench/results/2026-11-15-h200.md): products in bf16 and a copy; products in wider types are an estimate.
constexpr double kGpuNarrow = 685e12, kGpuWide = 50e12, kGpuBytes = 4.24e12;
// Its host link moved 49 GB/s each way at once. Estimates: a local SSD, read and written alike, saves, and NVLink.
constexpr double kHostMoved = 98e9, kDiskMoved = 2e9, kSaved = 1e9;
constexpr double kNvlinkSent = 200e9;

// A message between threads is read where it is sent from and written where it is received, by each of two.
double sent_between_threads(const MachineRates& machine) { return machine.bytes / 4; }

}  // namespace

FitRates stated_rates(const RunSpec& spec) {
  if (spec.run.device == RunDevice::cuda) {
    const bool narrow = spec.precision.compute != Precision::fp64 && spec.precision.compute != Precision::fp32;
    return {.machine = {.flops = narrow ? kGpuNarrow : kGpuWide, .bytes = kGpuBytes},
            .kernel = 3e-6,
            .sent = kNvlinkSent,
            .latency = 2e-5,
            .moved = kHostMoved,
            .saved = kSaved,
            .source = "the rates of an H200"};
  }
  const double cores = threads_of(spec);
  const MachineRates machine{.flops = kCoreFlops * cores, .bytes = kCoreBytes * cores};
  return {.machine = machine,
          .kernel = 1e-6,
          .sent = sent_between_threads(machine),
          .latency = 2e-5,
          .moved = kDiskMoved,
          .saved = kSaved,
          .source = "stated rates"};
}

FitRates measured_rates(const RunSpec& spec) {
  FitRates rates = stated_rates(spec);
  if (spec.run.device == RunDevice::cuda) return rates;
  constexpr std::size_t kCopied = std::size_t{64} << 20;
  const int threads = threads_of(spec);
  rates.machine = {.flops = gemm_peak(Device::cpu, accumulator_of(storage_types(spec.precision).compute), threads),
                   .bytes = cpu::copy_bandwidth(threads, kCopied)};
  rates.sent = sent_between_threads(rates.machine);
  rates.source = fmt::format("{:.0f} GFLOP/s of products and {:.1f} GB/s of copies, measured now on {} thread{}",
                             rates.machine.flops / 1e9, rates.machine.bytes / 1e9, threads, threads == 1 ? "" : "s");
  return rates;
}

double pipeline_stretch(const LayoutSpec& layout) {
  if (layout.pp == 1) return 1;
  return 1 / (1 - timed(schedule_of(layout), [](int) { return ChunkTimes{}; }).bubble());
}

StepCost step_cost(const RunSpec& spec, const std::vector<Plan>& stages, const FitRates& rates) {
  StepCost cost{.stretch = pipeline_stretch(spec.layout)};
  for (const Plan& plan : stages) {
    const SentMessages sent = plan.messages.total();
    cost.busy =
        std::max(cost.busy, roofline_seconds(plan.executed, rates.machine) +
                                static_cast<double>(plan.executed.calls) * rates.kernel +
                                static_cast<double>(sent.bytes_sent + plan.messages.numbers.bytes_sent) / rates.sent +
                                static_cast<double>(sent.calls + plan.messages.numbers.calls) * rates.latency);
    const std::int64_t moved = plan.moved.to_device + plan.moved.from_device + 2 * plan.moved_activations;
    cost.beside = std::max(cost.beside, static_cast<double>(moved) / rates.moved);
  }
  return cost;
}

}  // namespace lockstep
