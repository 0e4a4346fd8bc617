// Kernels timed on one device, or on one core beside others that do the same (bench/machine_bench.h).
#pragma once
#include <array>
#include <functional>

#include "bench/efficiency_fit.h"
#include "bench/kernel_benches.h"

namespace lockstep {

// Sizes that a device is busy with, and others around them.
struct BenchSizes {
  std::int64_t product;  // of the dims that are not small
  std::int64_t largest;  // of a product of equal dims
  std::array<std::int64_t, 3> small;
  std::array<std::int64_t, 3> tokens;  // of a sample, for attention
  std::int64_t all_tokens, width, ffn, vocabulary, head_width;
  std::array<std::int64_t, 5> copies;  // bytes touched
  struct Step {
    std::int64_t layers, width, ffn, head_width, vocabulary, tokens, samples;
  } step;  // the model whose whole step is timed
};
inline constexpr BenchSizes kOfACore{
    .product = 384,
    .largest = 1024,
    .small = {32, 64, 192},
    .tokens = {64, 256, 1024},
    .all_tokens = 1024,
    .width = 512,
    .ffn = 1408,
    .vocabulary = 8192,
    .head_width = 64,
    .copies = {32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20},
    .step = {.layers = 4, .width = 256, .ffn = 704, .head_width = 32, .vocabulary = 2048, .tokens = 256, .samples = 4}};
inline constexpr BenchSizes kOfAGpu{
    .product = 4096,
    .largest = 8192,
    .small = {512, 1024, 2048},
    .tokens = {512, 2048, 8192},
    .all_tokens = 16384,
    .width = 2048,
    .ffn = 5632,
    .vocabulary = 32768,
    .head_width = 128,
    .copies = {256 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30},
    .step = {
        .layers = 6, .width = 2048, .ffn = 5632, .head_width = 128, .vocabulary = 32768, .tokens = 2048, .samples = 8}};

// Seconds that this thread has computed: a kernel of one thread waits for nothing, so time in which the system ran
// something else is not its own.
double computed_seconds();

// A run of one rank and one thread.
RunSpec bench_run_in(Device device, Precision precision);

// Seconds, of the fastest quarter of the calls. `together` is called before each kernel is timed: it waits for all who
// measure.
class CoreBench {
 public:
  CoreBench(Device device, std::function<void()> together) : device_(device), together_(std::move(together)) {}

  double product(Precision precision, const ProductTiming& shape) const;  // the mean of x·Wᵀ, dy·W and dyᵀ·x
  double kernel(const RunSpec& run, const KernelBench& bench) const;
  double copy(std::int64_t touched) const;  // bytes read and written
  double launch() const;
  void together() const { together_(); }  // waits for all who measure

 private:
  double time(TimedTensors& tensors, const std::function<void()>& call) const;

  Device device_;
  std::function<void()> together_;
};

}  // namespace lockstep
