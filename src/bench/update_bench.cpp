#include "bench/update_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "kernels/cpu/ceilings.h"
#include "kernels/elementwise.h"
#include "kernels/optimizers.h"
#include "kernels/step_control.h"
#include "tensor/cpu/stream.h"
#include "tensor/memory.h"

namespace lockstep {

namespace {

struct UpdateTypes {
  DType master, moments, gradient;
  std::optional<DType> copy;
  std::int64_t bytes() const {
    return 2 * size_of(master) + 4 * size_of(moments) + size_of(gradient) + (copy ? size_of(*copy) : 0);
  }
  std::string text() const {
    return fmt::format("{} masters, {} moments, {} gradient{}", name_of(master), name_of(moments), name_of(gradient),
                       copy ? fmt::format(", {} copy", name_of(*copy)) : "");
  }
};

constexpr std::array kUpdateTypes{UpdateTypes{DType::f32, DType::f32, DType::f32, {}},
                                  UpdateTypes{DType::f32, DType::f32, DType::f32, DType::bf16},
                                  UpdateTypes{DType::f32, DType::f32, DType::bf16, DType::bf16},
                                  UpdateTypes{DType::f32, DType::bf16, DType::bf16, DType::bf16},
                                  UpdateTypes{DType::bf16, DType::bf16, DType::bf16, {}}};

// Tensors of every type that is asked for, in the memory that offloaded state would have.
class UpdateTensors {
 public:
  explicit UpdateTensors(const UpdateBenchOptions& o) : elements_(o.elements), workers_(*nowhere_, o.threads) {
    for (Buffer& buffer : buffers_) {
      buffer = memory_->allocate(elements_ * 4, Tag::workspace);
      fill({.y = as(buffer, DType::f32), .value = 1}, stream());
    }
  }
  Stream& stream() { return workers_; }
  cpu::Workers& workers() { return workers_.workers(); }
  float* floats(int i) { return static_cast<float*>(buffers_[static_cast<std::size_t>(i)].data()); }
  // The i-th buffer as numbers of a plain size.
  Tensor tensor(int i, DType type, double value) {
    const Tensor t = as(buffers_[static_cast<std::size_t>(i)], type);
    fill({.y = t, .value = value}, stream());
    return t;
  }

 private:
  Tensor as(const Buffer& buffer, DType type) const { return view(buffer, type, {elements_}); }

  std::int64_t elements_;
  Ledger ledger_, nothing_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_), nowhere_ = make_memory(Device::meta, nothing_);
  cpu::Stream workers_;
  std::array<Buffer, 5> buffers_;
};

template <class Work>
double update_rate(std::int64_t bytes, Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return static_cast<double>(bytes) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

UpdateBench measure_updates(const UpdateBenchOptions& o) {
  UpdateTensors tensors(o);
  double control[kStepControls] = {};
  control[kLearningRate] = 1e-4;
  control[kStep] = control[kGradientScale] = control[kFinite] = 1;
  control[kFirstCorrection] = control[kSecondCorrection] = 1;
  const RoundingRun rounding = RoundingRun::flat(0, o.elements, 1);
  UpdateBench found;
  for (const UpdateTypes& types : kUpdateTypes) {
    double best = 0, in_place = 0, triad = 0;
    for (int round = 0; round <= o.rounds; ++round) {
      const std::array<float*, 3> arrays{tensors.floats(0), tensors.floats(1), tensors.floats(2)};
      const double changed =
          update_rate(24 * o.elements, [&] { cpu::change_in_place(arrays, o.elements, tensors.workers()); });
      const double added = update_rate(12 * o.elements, [&] {
        cpu::triad(tensors.floats(0), tensors.floats(1), tensors.floats(2), o.elements, tensors.workers());
      });
      const AdamWArgs args{.master = tensors.tensor(0, types.master, 0.5),
                           .weight = types.copy ? tensors.tensor(4, *types.copy, 0) : Tensor{},
                           .m = tensors.tensor(1, types.moments, 1e-3),
                           .v = tensors.tensor(2, types.moments, 1e-3),
                           .gradient = tensors.tensor(3, types.gradient, 1e-2),
                           .control = ConstTensor(control, DType::f64, Device::cpu, {kStepControls}),
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .decay = 0.1,
                           .decayed = o.elements,
                           .rounding = {&rounding, 1}};
      const double updated = update_rate(types.bytes() * o.elements, [&] { adamw(args, tensors.stream()); });
      if (round == 0) continue;  // touches memory
      in_place = std::max(in_place, changed);
      triad = std::max(triad, added);
      best = std::max(best, updated);
    }
    found.in_place = std::max(found.in_place, in_place);
    found.triad = std::max(found.triad, triad);
    found.rows.push_back(
        {.types = types.text(), .bytes_an_element = types.bytes(), .rate = best, .ceiling = std::max(in_place, triad)});
  }
  return found;
}

}  // namespace lockstep
