#include "plan/machine.h"

#include <algorithm>
#include <chrono>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "spec/machine/known_gpus.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"

namespace lockstep {

double gemm_peak(Device device, DType dtype, int threads) {
  const std::int64_t kSize = device == Device::cuda ? 4096 : 1024;
  constexpr double kBudget = 0.15;  // seconds
  Ledger ledger;
  const auto memory = make_memory(device, ledger);
  const auto owned = make_stream(*memory, threads);
  Stream& stream = *owned;
  const auto square = [&](const Buffer& buffer) { return view(buffer, dtype, {kSize, kSize}); };
  const std::int64_t bytes = kSize * kSize * size_of(dtype);
  const Buffer a = memory->allocate(bytes, Tag::workspace), b = memory->allocate(bytes, Tag::workspace),
               c = memory->allocate(bytes, Tag::workspace);
  for (const Buffer* operand : {&a, &b}) fill({.y = square(*operand), .value = 0.5}, stream);

  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  double best = 0;
  while (std::chrono::duration<double>(Clock::now() - begin).count() < kBudget) {
    const auto start = Clock::now();
    matmul({.c = square(c), .a = square(a), .b = square(b), .transpose_b = true}, stream);
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * static_cast<double>(kSize * kSize * kSize) / seconds);
  }
  return best;
}

Peak peak_of(Device device, DType compute, int threads) {
  if (device == Device::cuda) {
    const std::string name = cuda::gpu_name();
    if (const KnownGpu* gpu = find_gpu(name)) {
      const double flops = compute == DType::f64 ? gpu->wide : compute == DType::f32 ? gpu->single : gpu->narrow;
      return {flops, fmt::format("{}: {:.0f} TFLOP/s in {} by its data sheet", name, flops / 1e12, name_of(compute))};
    }
    const double flops = gemm_peak(device, compute, threads);
    return {flops, fmt::format("{}: matrix products reach {:.0f} TFLOP/s in {} here (no data sheet is known)", name,
                               flops / 1e12, name_of(compute))};
  }
  const double flops = gemm_peak(device, accumulator_of(compute), threads);
  return {flops, fmt::format("{} thread{}, matrix products reach {:.0f} GFLOP/s here", threads, threads == 1 ? "" : "s",
                             flops / 1e9)};
}

}  // namespace lockstep
