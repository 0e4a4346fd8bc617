// FP8 on the GPU: largest magnitudes found on the way, quantization to the CPU's bytes, products of real sizes against
// bf16's, and a run.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"
#include "kernels/random.h"
#include "support/fused_quantization.h"
#include "support/measured_kernels.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {

// A device with tensors made on it.
struct Desk {
  explicit Desk(Device device) : memory(make_memory(device, ledger)), stream(make_stream(*memory, 2)) {}
  Tensor room(const Shape& shape, DType dtype) {
    buffers.push_back(memory->allocate(shape.elements() * size_of(dtype), Tag::workspace));
    return view(buffers.back(), dtype, shape);
  }
  // The same numbers on every device: made in fp32 and rounded.
  Tensor normal(const Shape& shape, std::uint64_t key, double std = 1) {
    const Tensor wide = room(shape, DType::f32), t = room(shape, DType::bf16);
    init_normal({.x = wide.reshape({shape.elements()}), .key = key, .std = std}, *stream);
    cast({.y = t, .x = wide}, *stream);
    return t;
  }
  std::vector<char> bytes(const Tensor& t) {
    std::vector<char> all(static_cast<std::size_t>(t.bytes()));
    download(all.data(), t, *stream);
    stream->synchronize();
    return all;
  }
  struct Quantized {
    Tensor q, turned, scale;
  };
  Quantized quantized(const Tensor& x, DType type) {
    const Tensor largest = room({1}, DType::f32);
    const Quantized made{room(x.shape(), type), room({x.dim(1), x.dim(0)}, type), room({1}, DType::f32)};
    amax({.amax = largest, .x = x}, *stream);
    quantize({.q = made.q, .turned = made.turned, .scale = made.scale, .x = x, .amax = largest}, *stream);
    return made;
  }

  Ledger ledger;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Stream> stream;
  std::vector<Buffer> buffers;
};

class Fp8OnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

TEST_F(Fp8OnTheGpu, TheLargestMagnitudeFoundOnTheWayIsThatOfWhatWasWritten) {
  Desk d(Device::cuda);
  const tests::MeasuredKernels measured{
      .room = [&](const Shape& shape, DType type) { return d.room(shape, type); },
      .normal = [&](const Shape& shape, std::uint64_t key, double std) { return d.normal(shape, key, std); },
      .stream = *d.stream,
      .take =
          [&](const std::string& name, const Tensor& written, const Tensor& found) {
            const Tensor after = d.room({1}, DType::f32);
            amax({.amax = after, .x = written}, *d.stream);
            const double want = to_doubles(after, *d.stream)[0], got = to_doubles(found, *d.stream)[0];
            EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
                << name << ": " << got << ", not " << want;
            EXPECT_FALSE(got <= 0) << name;
          }};
  measured.run_all();
}

TEST_F(Fp8OnTheGpu, WhatIsWrittenInFp8AloneHasTheBytesOfWhatIsWrittenInBf16First) {
  Desk d(Device::cuda);
  tests::FusedQuantization{
      .room = [&](const Shape& shape, DType type) { return d.room(shape, type); },
      .normal = [&](const Shape& shape, std::uint64_t key, double std) { return d.normal(shape, key, std); },
      .stream = *d.stream,
      .equal = [&](const std::string& name, const Tensor& fused,
                   const Tensor& apart) { EXPECT_EQ(d.bytes(fused), d.bytes(apart)) << name; }}
      .run_all();
}

TEST_F(Fp8OnTheGpu, QuantizesToTheCpusBytes) {
  Desk gpu(Device::cuda), cpu(Device::cpu);
  for (const DType type : {DType::f8e4m3, DType::f8e5m2})
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{16, 16}, {400, 1040}, {2048, 304}}) {
      // From one device's numbers, so that those are equal.
      const Tensor x = cpu.normal({rows, columns}, 7, 1e-6), same = gpu.room({rows, columns}, DType::bf16);
      const std::vector<char> numbers = cpu.bytes(x);
      upload(same, numbers.data(), *gpu.stream);
      const auto here = cpu.quantized(x, type), there = gpu.quantized(same, type);
      EXPECT_EQ(gpu.bytes(there.q), cpu.bytes(here.q));
      EXPECT_EQ(gpu.bytes(there.turned), cpu.bytes(here.turned));
      EXPECT_EQ(gpu.bytes(there.scale), cpu.bytes(here.scale));
    }
}

// Signal over noise, in dB, of a product of FP8 beside that of bf16, of the three kinds that a projection has.
TEST_F(Fp8OnTheGpu, ProductsOfAModelsSizeHaveAtLeast20DecibelsAndRepeatToTheBit) {
  Desk d(Device::cuda);
  constexpr std::int64_t N = 4096, I = 2048, O = 5632;
  const Tensor x = d.normal({N, I}, 1), w = d.normal({O, I}, 2, 0.02), dy = d.normal({N, O}, 3, 1e-6);
  const auto x8 = d.quantized(x, DType::f8e4m3), w8 = d.quantized(w, DType::f8e4m3),
             dy8 = d.quantized(dy, DType::f8e5m2);
  const auto expect_good = [&](const MatmulArgs& narrow, const MatmulArgs& wide) {
    matmul(narrow, *d.stream);
    matmul(wide, *d.stream);
    const std::vector<char> first = d.bytes(narrow.c);
    const std::vector<double> got = to_doubles(narrow.c, *d.stream), want = to_doubles(wide.c, *d.stream);
    double signal = 0, noise = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      signal += want[i] * want[i];
      noise += (got[i] - want[i]) * (got[i] - want[i]);
    }
    EXPECT_GE(10 * std::log10(signal / noise), 20);
    matmul(narrow, *d.stream);
    EXPECT_EQ(d.bytes(narrow.c), first);
  };
  const auto of = [&](const Shape& shape, DType type = DType::bf16) { return d.room(shape, type); };
  for (const bool fast : {true, false})
    expect_good({.c = of({N, O}),
                 .a = x8.q,
                 .b = w8.q,
                 .transpose_b = true,
                 .scale_a = x8.scale,
                 .scale_b = w8.scale,
                 .fast_sums = fast},
                {.c = of({N, O}), .a = x, .b = w, .transpose_b = true});
  expect_good(
      {.c = of({N, I}), .a = dy8.q, .b = w8.turned, .transpose_b = true, .scale_a = dy8.scale, .scale_b = w8.scale},
      {.c = of({N, I}), .a = dy, .b = w});
  expect_good({.c = of({O, I}, DType::f32),
               .a = dy8.turned,
               .b = x8.turned,
               .transpose_b = true,
               .scale_a = dy8.scale,
               .scale_b = x8.scale},
              {.c = of({O, I}, DType::f32), .a = dy, .b = x, .transpose_a = true});
}

}  // namespace
}  // namespace lockstep
