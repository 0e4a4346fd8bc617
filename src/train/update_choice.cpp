#include "train/update_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "kernels/elementwise.h"
#include "kernels/step_control.h"
#include "optim/flat_optimizer.h"
#include "parallel/zero_shards.h"
#include "tensor/cpu/stream.h"
#include "tensor/host_memory.h"
#include "tensor/side_stream.h"
#include "tensor/transfer.h"
#include "train/host_values.h"

namespace lockstep {

namespace {

constexpr std::int64_t kTimedElements = 16 << 20;  // more than caches hold
constexpr std::int64_t kTimedBytes = 64 << 20;     // of a copy
constexpr int kTimes = 3;

int moments_of(const OptimizerSpec& spec) { return spec.kind == OptimizerKind::adamw ? 2 : spec.momentum > 0 ? 1 : 0; }

// The least of a few times, after one that touches all memory.
template <class Body>
double least_seconds(Body&& body) {
  using Clock = std::chrono::steady_clock;
  double least = 1e9;
  for (int i = 0; i <= kTimes; ++i) {
    const auto begin = Clock::now();
    body();
    if (i > 0) least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return std::max(least, 1e-9);
}

double measured_elements(const RunSpec& spec, Memory& host, int threads) {
  const StorageTypes types = storage_types(spec.precision);
  Ledger nothing;
  const auto nowhere = make_memory(Device::meta, nothing);
  cpu::Stream workers(*nowhere, threads);
  Stream& stream = workers;
  const bool apart = types.compute != types.master;
  FlatOptimizer optimizer(spec.optimizer,
                          {.elements = kTimedElements,
                           .decayed = kTimedElements,
                           .moments = types.moments,
                           .rounding = {RoundingRun::flat(0, kTimedElements, 1)}},
                          host, "timed", stream);
  std::vector<Buffer> buffers;
  const auto make = [&](DType type, double value) {
    buffers.push_back(host.allocate(kTimedElements * size_of(type), Tag::workspace));
    const Tensor t = view(buffers.back(), type, {kTimedElements});
    fill({.y = t, .value = value}, stream);
    return t;
  };
  const Tensor master = make(types.master, 0.5), gradient = make(types.gradient, 1e-3);
  const Tensor weight = apart ? make(types.compute, 0) : Tensor{};
  double control[kStepControls] = {};
  control[kLearningRate] = 1e-4;
  control[kStep] = control[kGradientScale] = control[kFinite] = 1;
  control[kFirstCorrection] = control[kSecondCorrection] = 1;
  const ConstTensor scalars(control, DType::f64, Device::cpu, {kStepControls});
  return static_cast<double>(kTimedElements) /
         least_seconds([&] { optimizer.update(master, weight, gradient, scalars, stream); });
}

// Bytes per second of either direction while both copy.
double measured_copies(Memory& host, Device device) {
  Ledger ledger;
  const auto memory = make_memory(device, ledger);
  SideStream up(device), down(device);
  const auto make = [](Memory& in) { return in.allocate(kTimedBytes, Tag::workspace); };
  const Buffer from = make(host), to = make(host), comes = make(*memory), goes = make(*memory);
  const auto bytes_of = [](const Buffer& buffer) { return view(buffer, DType::f32, {kTimedBytes / 4}); };
  constexpr int kCopies = 4;
  const double seconds = least_seconds([&] {
    for (int i = 0; i < kCopies; ++i) {
      upload_later(bytes_of(comes), from.data(), up.stream());
      download_later(to.data(), bytes_of(goes), down.stream());
    }
    up.stream().synchronize();
    down.stream().synchronize();
  });
  return kCopies * static_cast<double>(kTimedBytes) / seconds;
}

}  // namespace

UpdateSeconds update_seconds(const RunSpec& spec, const UpdateRates& rates) {
  const StorageTypes types = storage_types(spec.precision);
  const bool apart = types.compute != types.master;
  const auto size = [](DType type) { return static_cast<double>(size_of(type)); };
  const double state = (apart ? size(types.master) : 0) + moments_of(spec.optimizer) * size(types.moments);
  const double weight = size(types.compute), comes = size(types.gradient) + (apart ? 0 : weight);
  return {.device = std::max(state / rates.up_per_s, state / rates.down_per_s),
          .host = std::max({1 / rates.elements_per_s, comes / rates.down_per_s, weight / rates.up_per_s})};
}

UpdateRates measure_update_rates(const RunSpec& spec, Device device, int threads) {
  Ledger ledger;
  const auto host = make_host_memory(device, ledger);
  const double copies = measured_copies(*host, device);
  return {.elements_per_s = measured_elements(spec, *host, threads), .up_per_s = copies, .down_per_s = copies};
}

UpdateSeconds agreed_seconds(UpdateSeconds mine, Communicator* ranks) {
  if (!ranks) return mine;
  std::array<double, 2> sums{mine.device, mine.host};
  sum_over(*ranks, sums);
  return {.device = sums[0] / ranks->size(), .host = sums[1] / ranks->size()};
}

std::optional<std::string> choose_update(RunSpec& spec, Device device, int threads, Communicator* ranks) {
  MemorySpec& memory = spec.memory;
  if (memory.offload_optimizer != Offload::host || memory.offload_update != OffloadUpdate::choose) return std::nullopt;
  if (memory.offload_gradients != Offload::none || memory.offload_parameters != Offload::none) {
    memory.offload_update = OffloadUpdate::device;  // the other is not there for these
    return std::nullopt;
  }
  const UpdateSeconds seconds =
      agreed_seconds(update_seconds(spec, measure_update_rates(spec, device, threads)), ranks);
  memory.offload_update = seconds.faster();
  return fmt::format(
      "memory.offload_update=\"{}\": an update of a billion elements takes {:.2f} s brought to the device and {:.2f} s "
      "on "
      "the host, by the rates measured now",
      name_of(memory.offload_update), 1e9 * seconds.device, 1e9 * seconds.host);
}

}  // namespace lockstep
