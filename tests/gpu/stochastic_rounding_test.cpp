// State of 16 bits is rounded to the cpu's bits on the GPU, whatever tensors are where.
#include "kernels/stochastic_rounding.h"

#include <gtest/gtest.h>

#include "kernels/optimizers.h"
#include "kernels/step_control.h"
#include "support/case_run.h"
#include "support/devices.h"
#include "support/step_controls.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"

namespace lockstep::tests {
namespace {

// More tensors than one launch takes, at odd places: contiguous, by columns, and in columns that alternate.
std::vector<RoundingRun> many_tensors(std::int64_t places) {
  std::vector<RoundingRun> runs;
  std::int64_t at = 3;
  for (std::uint64_t key = 1; at < places; key += 3) {
    const std::int64_t row = 5 + static_cast<std::int64_t>(key % 61), rows = 2 + static_cast<std::int64_t>(key % 7);
    runs.push_back(RoundingRun::flat(at, row, key, static_cast<std::int64_t>(key)));
    at += row;
    runs.push_back({at, at + rows * row, row, 0, row, key + 1, 2, row + 13});
    at += rows * row + 1;
    const std::int64_t pitch = 3 * row;
    for (const std::int64_t part : {0, 1, 2})
      runs.push_back(
          {at, at + rows * pitch, pitch, part * row, (part + 1) * row, key + 2, part * 2 * row + 1, 6 * row});
    at += rows * pitch;
  }
  return runs;
}

TEST(StochasticRoundingOnTheGpu, GivesTheCpusBits) {
  if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  constexpr std::int64_t n = 40007, first = 70;
  const std::vector<RoundingRun> tensors = many_tensors(n + 500);
  ASSERT_GT(tensors.size(), 200U);
  Ledger ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  const auto stream = make_stream(*memory, 1);
  CpuDevice cpu;
  for (const DType master : {DType::f32, DType::bf16})
    for (const DType moments : {DType::f32, DType::bf16})
      for (const DType gradient : {DType::f32, DType::bf16})
        for (const std::int64_t gap : {0, 2}) {
          KernelCase update{.op = "adamw", .shape = "", .dtype = gradient};
          update.operands = {{"master", {n}, master, Role::inout, normal(), {gap}},
                             {"m", {n}, moments, Role::inout, normal(0.1), {gap}},
                             {"v", {n}, moments, Role::inout, constant(0.01), {gap}},
                             {"gradient", {n}, gradient, Role::in, normal(0.1), {gap}},
                             {"control",
                              {kStepControls},
                              DType::f64,
                              Role::in,
                              listed(step_controls({.rate = 0.01, .step = 3, .scale = 0.25, .beta2 = 0.95}))}};
          update.run = [&](std::span<const Tensor> t, Stream& on) {
            adamw({.master = t[0],
                   .weight = {},
                   .m = t[1],
                   .v = t[2],
                   .gradient = t[3],
                   .control = t[4],
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .decay = 0.1,
                   .decayed = n / 2 + 1,
                   .rounding = tensors,
                   .first = first},
                  on);
          };
          CaseRun here(update, cpu.memory()), there(update, *memory);
          here.run(cpu.stream());
          there.run(*stream);
          for (int operand = 0; operand < 3; ++operand)
            EXPECT_TRUE(here.bytes(operand) == there.bytes(operand))
                << update.operands[static_cast<std::size_t>(operand)].name << ", master " << name_of(master)
                << ", moments " << name_of(moments) << ", gradient " << name_of(gradient) << ", gap " << gap;
        }
}

}  // namespace
}  // namespace lockstep::tests
