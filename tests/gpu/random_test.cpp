// Masks and initial weights on the GPU are the cpu's: masks to the bit; weights from the same uniform numbers, to what
// CUDA's log, sin and cos may differ from the C library's, before one rounding to the type.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/random.h"
#include "support/case_names.h"
#include "support/case_run.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/reference_random.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

struct GpuDevice {
  Ledger ledger;
  std::unique_ptr<Memory> memory = make_memory(Device::cuda, ledger);
  std::unique_ptr<Stream> stream = make_stream(*memory, 1);
};

class RandomOnTheGpu : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    if (cuda::gpu_count() > 0) gpu_ = std::make_unique<GpuDevice>();
  }
  static void TearDownTestSuite() { gpu_.reset(); }
  void SetUp() override {
    if (!gpu_) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
  static inline std::unique_ptr<GpuDevice> gpu_;
};

// The smallest and the largest value that a number within a few units of the last place of double is rounded to.
void expect_rounded(DType type, double got, double exact, const std::string& what) {
  const double slack = 16 * 0x1p-53 * std::abs(exact);
  const double low = round_to(type, exact - slack), high = round_to(type, exact + slack);
  EXPECT_TRUE(got >= low && got <= high) << what << ": " << got << " for " << exact;
}

using KernelsOfChance = RandomOnTheGpu;

TEST_P(KernelsOfChance, GiveTheCpusNumbers) {
  const KernelCase& kernel = kernel_cases()[GetParam()];
  CpuDevice cpu;
  CaseRun here(kernel, cpu.memory()), there(kernel, *gpu_->memory);
  here.run(cpu.stream());
  there.run(*gpu_->stream);
  if (kernel.op == "dropout") {
    for (int n = 0; n < static_cast<int>(kernel.operands.size()); ++n)
      EXPECT_TRUE(here.bytes(n) == there.bytes(n)) << kernel.operands[static_cast<std::size_t>(n)].name;
    return;
  }
  std::vector<HostTensor> exact = here.given();
  exact[0].dtype = DType::f64;
  kernel.reference(exact);
  const HostTensor got = there.read(0);
  for (std::int64_t i = 0; i < got.elements(); ++i)
    expect_rounded(kernel.dtype, got[i], exact[0][i], "element " + std::to_string(i));
}

INSTANTIATE_TEST_SUITE_P(Case, KernelsOfChance, ::testing::ValuesIn(cases_where([](const KernelCase& kernel) {
                           return kernel.op == "init_normal" || kernel.op == "dropout";
                         })),
                         case_name);

// Large, far from the beginning, and in every type: no index is taken modulo anything.
TEST(LargeTensorsOnTheGpu, HaveTheCpusMasksAndNumbers) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  GpuDevice gpu;
  CpuDevice cpu;
  constexpr std::int64_t kRows = 2050, kWidth = 515, kLength = 205;
  for (const DType type : kFloatTypes)
    for (const double probability : {0.01, 0.5, 0.9}) {
      std::vector<std::vector<std::byte>> results;
      const auto run = [&](Memory& memory, Stream& stream) {
        const Buffer x = memory.allocate(kRows * kWidth * size_of(type), Tag::data);
        const Buffer positions = memory.allocate(kLength * 4, Tag::data);
        std::vector<std::byte> ones(static_cast<std::size_t>(x.bytes()));
        for (std::int64_t i = 0; i < kRows * kWidth; ++i) store_element(ones.data() + i * size_of(type), type, 1.5);
        std::vector<std::int32_t> places;
        for (std::int32_t i = 0; i < kLength; ++i) places.push_back(1'000'000 + 3 * i);
        const Tensor t = view(x, type, {kRows, kWidth});
        upload(t, ones.data(), stream);
        upload(view(positions, DType::i32, {kLength}), places.data(), stream);
        dropout({.y = t,
                 .x = t,
                 .positions = view(positions, DType::i32, {kLength}),
                 .probability = probability,
                 .key = 0xfedcba9876543210,
                 .first_sample = std::int64_t{1} << 38,
                 .first_row = 77},
                stream);
        std::vector<std::byte> bytes(ones.size());
        download(bytes.data(), t, stream);
        results.push_back(std::move(bytes));
      };
      run(cpu.memory(), cpu.stream(4));
      run(*gpu.memory, *gpu.stream);
      EXPECT_TRUE(results[0] == results[1]) << name_of(type) << " " << probability;
    }
  constexpr std::int64_t kElements = 300'001, kFirst = (std::int64_t{1} << 41) + 7;
  for (const DType type : kFloatTypes) {
    const Buffer x = gpu.memory->allocate(kElements * size_of(type), Tag::data);
    const Tensor t = view(x, type, {kElements});
    init_normal({.x = t, .key = 31, .first = kFirst, .std = 0.7}, *gpu.stream);
    const std::vector<double> got = to_doubles(t, *gpu.stream);
    for (std::int64_t i = 0; i < kElements; ++i) {
      expect_rounded(type, got[static_cast<std::size_t>(i)], 0.7 * reference::normal_of(31, kFirst + i),
                     std::string(name_of(type)) + " element " + std::to_string(i));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Whole models: the GPU's weights begin as the cpu's, and every step of training with dropout has the cpu's loss.
TEST(ModelsOnTheGpu, BeginAndDropAsOnTheCpu) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  for (NamedSpec named : tiny_specs()) {
    if (named.spec.dropout == 0 && named.name != "llama" && named.name != "qwen3") continue;
    named.spec.dropout = 0.2;
    named.spec.attention_dropout = 0.3;
    const Replica::Options o{.spec = named.spec,
                             .B = 4,
                             .T = 9,
                             .layout = {.micro = 2},
                             .precision = Precision::fp64,
                             .optimizer = {.learning_rate = 1e-2},
                             .seed = 6};
    HostRun here(o);
    GpuDevice gpu;
    Replica there(o, *gpu.memory, *gpu.stream);
    here.replica->init_weights();
    there.init_weights();
    const auto expect_weights = [&](double tolerance, const char* when) {
      const auto a = here.replica->tensors(), b = there.tensors();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t t = 0; t < a.size(); ++t) {
        const std::vector<double> want = to_doubles(a[t].master, *here.stream),
                                  got = to_doubles(b[t].master, *gpu.stream);
        for (std::size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << a[t].tensor.name << " " << i << when;
      }
    };
    expect_weights(1e-15, ", at the beginning");
    for (unsigned step = 0; step < 4; ++step) {
      const TokenBatch batch = random_batch(o, step);
      const Replica::Result want = here.replica->step(batch.tokens, batch.targets);
      const Replica::Result got = there.step(batch.tokens, batch.targets);
      EXPECT_NEAR(got.loss, want.loss, 1e-11 * want.loss) << named.name << " step " << step;
      EXPECT_NEAR(got.norm, want.norm, 1e-10 * want.norm) << named.name << " step " << step;
    }
    expect_weights(1e-7, ", after four steps");  // AdamW divides by moments that may be next to nothing
  }
}

}  // namespace
}  // namespace lockstep::tests
