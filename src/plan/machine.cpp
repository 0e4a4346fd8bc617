#include "plan/machine.h"

#include <algorithm>
#include <chrono>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tensor/cpu/stream.h"

namespace lockstep {

double gemm_peak(DType dtype, int threads) {
  constexpr std::int64_t kSize = 1024;
  constexpr double kBudget = 0.15;  // seconds
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  cpu::Stream on_cpu(*memory, threads);
  Stream& stream = on_cpu;
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
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds);
  }
  return best;
}

}  // namespace lockstep
