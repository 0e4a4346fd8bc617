// Rates of every kernel at the sizes of a real step, beside ceilings measured in the same run.
//
//   bench_kernels [--threads=N] [--dtype=fp32|fp64|bf16|fp16] [Google Benchmark's own flags]
//
// The cases are those of the tests (tests/support/kernel_cases.h); what a call computes and moves is what the same call
// counts on meta. Products and attention are held to the FMA peak, the others, and products that would take longer to
// read than to compute, to copy bandwidth; `ratio` is the share of it. A kernel whose operands fit the caches can beat
// copy bandwidth, which is measured from main memory.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/cpu/ceilings.h"
#include "support/case_run.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

struct Ceilings {
  double flops, bytes;
};

void measure(benchmark::State& state, const KernelCase& kernel, int threads, const Ceilings& ceilings) {
  MetaDevice meta;
  CaseRun counted(kernel, meta.memory());
  kernel.run(counted.tensors(), meta.stream());
  const meta::Work work = meta.work();

  CpuDevice cpu;
  CaseRun real(kernel, cpu.memory());
  Stream& stream = cpu.stream(threads);
  real.run(stream);
  std::vector<double> times;  // of each call: the median is what is reported, since machines are noisy
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    kernel.run(real.tensors(), stream);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    state.SetIterationTime(times.back());
  }
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  const double seconds = times[times.size() / 2];
  const auto bytes = static_cast<double>(work.bytes_read + work.bytes_written), flops = static_cast<double>(work.flops);
  const bool product = work.matmul_flops > 0 && flops / ceilings.flops > bytes / ceilings.bytes;
  state.counters[product ? "GFLOP/s" : "GB/s"] = (product ? flops : bytes) / seconds / 1e9;
  state.counters["ratio"] = product ? flops / seconds / ceilings.flops : bytes / seconds / ceilings.bytes;
}

int run(int argc, char** argv) {
  int threads = 1;
  DType dtype = DType::f32;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::sscanf(argv[i], "--threads=%d", &threads) == 1 && threads >= 1) continue;
    if (std::strncmp(argv[i], "--dtype=", 8) == 0) {
      bool known = false;
      for (const DType t : kFloatTypes)
        if (name_of(t) == argv[i] + 8) {
          dtype = t;
          known = true;
        }
      if (!known) {
        fmt::print(stderr, "bench_kernels: unknown type '{}'; fp64, fp32, bf16 or fp16\n", argv[i] + 8);
        return 2;
      }
      continue;
    }
    argv[kept++] = argv[i];
  }
  argc = kept;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;

  const Ceilings ceilings{cpu::fma_peak(dtype, threads), cpu::copy_bandwidth(threads)};
  fmt::print("{} threads, {}: FMA peak {:.1f} GFLOP/s, copy {:.1f} GB/s\n", threads, name_of(dtype),
             ceilings.flops / 1e9, ceilings.bytes / 1e9);
  std::fflush(stdout);
  for (const KernelCase& kernel : speed_cases(dtype)) {
    const std::string name = kernel.op == "matmul" ? kernel.name() : fmt::format("{}_{}", kernel.op, name_of(dtype));
    benchmark::RegisterBenchmark(
        name.c_str(),
        [kernel, threads, ceilings](benchmark::State& state) { measure(state, kernel, threads, ceilings); })
        ->Unit(benchmark::kMicrosecond)
        ->UseManualTime()
        ->MinTime(0.3);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace lockstep::tests

int main(int argc, char** argv) { return lockstep::tests::run(argc, argv); }
