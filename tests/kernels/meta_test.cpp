// On meta every kernel checks its operands, touches none, and counts its work: the planner's only source of numbers.
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "support/case_names.h"
#include "support/case_run.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

std::int64_t bytes_of(const Operand& operand) { return operand.shape.elements() * size_of(operand.dtype); }

const Operand* find(const KernelCase& kernel, const std::string& name) {
  for (const Operand& operand : kernel.operands)
    if (operand.name == name) return &operand;
  return nullptr;
}

// What a kernel must read and write once: its inputs and its outputs. Of an embedding's tables, only the rows looked
// up; of a split loss without gradients, no logits; of what is added to at some places, or packed, these.
std::pair<std::int64_t, std::int64_t> bytes_moved(const KernelCase& kernel) {
  std::int64_t read = 0, written = 0;
  for (const Operand& operand : kernel.operands) {
    if (operand.role != Role::out) read += bytes_of(operand);
    if (operand.role != Role::in) written += bytes_of(operand);
  }
  if (kernel.op == "embedding_forward")
    for (const char* table : {"table", "position_table"})
      if (const Operand* t = find(kernel, table)) read += bytes_of(*find(kernel, "y")) - bytes_of(*t);
  if (kernel.op == "split_cross_entropy" && !find(kernel, "dlogits") && find(kernel, "logits")->role == Role::in)
    read -= bytes_of(*find(kernel, "logits"));
  if (kernel.op == "add_at") {
    const std::int64_t more = bytes_of(*find(kernel, "values")) - bytes_of(*find(kernel, "y"));
    read += more;
    written += more;
  }
  if (kernel.op == "pack") read += bytes_of(*find(kernel, "packed")) - bytes_of(*find(kernel, "dense"));
  if (kernel.op == "gather_rows") read += bytes_of(*find(kernel, "y")) - bytes_of(*find(kernel, "table"));
  if (kernel.op == "scatter_rows") {
    read -= bytes_of(*find(kernel, "table"));
    written += bytes_of(*find(kernel, "x")) - bytes_of(*find(kernel, "table"));
  }
  if (kernel.op == "embedding_backward") {
    const Operand &dtable = *find(kernel, "dtable"), &dy = *find(kernel, "dy");
    const std::int64_t rows = dy.shape.elements() * size_of(dtable.dtype);  // read, added to, written
    read += rows - (dtable.role == Role::inout ? bytes_of(dtable) : 0);
    written += rows - (dtable.role == Role::inout ? bytes_of(dtable) : 0);
  }
  return {read, written};
}

class EveryKernelOnMeta : public ::testing::TestWithParam<int> {
 protected:
  MetaDevice device_;
};

TEST_P(EveryKernelOnMeta, CountsEveryOperandOnceAndTouchesNone) {
  const KernelCase& kernel = kernel_cases()[GetParam()];
  CaseRun run(kernel, device_.memory());
  for (const Tensor& t : run.tensors()) ASSERT_EQ(t.raw(), nullptr);
  run.run(device_.stream());
  const meta::Work& work = device_.work();
  const auto [read, written] = bytes_moved(kernel);
  EXPECT_EQ(work.calls, 1);
  EXPECT_EQ(work.bytes_read, read);
  EXPECT_EQ(work.bytes_written, written);
  EXPECT_GE(work.flops, 0);
  EXPECT_GT(work.flops + work.bytes_written + work.bytes_read, 0);
}

INSTANTIATE_TEST_SUITE_P(Case, EveryKernelOnMeta, ::testing::ValuesIn(all_cases()), case_name);

class CountedOnMeta : public ::testing::Test {
 protected:
  // A tensor of nothing.
  Tensor like(DType dtype, const Shape& shape) { return Tensor(nullptr, dtype, Device::meta, shape); }
};

TEST_F(CountedOnMeta, MatmulIsTwoOperationsForEachProduct) {
  const DType type = DType::bf16;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      MetaDevice device;
      matmul({.c = like(DType::f32, {7, 13}),
              .a = like(type, ta ? Shape{31, 7} : Shape{7, 31}),
              .b = like(type, tb ? Shape{13, 31} : Shape{31, 13}),
              .transpose_a = ta,
              .transpose_b = tb,
              .bias = like(type, {13}),
              .accumulate = true},
             device.stream());
      EXPECT_EQ(device.work().matmul_flops, 2 * 7 * 13 * 31);
      EXPECT_EQ(device.work().bytes_read, 2 * (7 * 31 + 13 * 31 + 13) + 4 * 7 * 13);
      EXPECT_EQ(device.work().bytes_written, 4 * 7 * 13);
    }
}

// Every pair of a query and a key it sees, one by one.
std::int64_t visible_pairs(std::int64_t queries, std::int64_t keys, bool causal) {
  std::int64_t pairs = 0;
  for (std::int64_t t = 0; t < queries; ++t)
    for (std::int64_t s = 0; s < keys; ++s) pairs += !causal || s <= t + keys - queries;
  return pairs;
}

TEST_F(CountedOnMeta, AttentionIsTwoProductsForwardAndFiveBackwardOnEveryVisiblePair) {
  constexpr std::int64_t B = 3, H = 6, K = 2, D = 20;
  for (const auto& [T, S, causal] : {std::tuple{1, 1, true},
                                     {7, 7, true},
                                     {65, 65, true},
                                     {13, 31, true},
                                     {1, 64, true},
                                     {31, 13, false},
                                     {64, 64, false}}) {
    const Tensor q = like(DType::f16, {B, T, H, D}), k = like(DType::f16, {B, S, K, D}),
                 lse = like(DType::f32, {B, H, T});
    MetaDevice forward, backward;
    attention_forward({.o = q, .lse = lse, .q = q, .k = k, .v = k, .scale = 1, .causal = causal}, forward.stream());
    attention_backward(
        {.dq = q, .dk = k, .dv = k, .d_o = q, .q = q, .k = k, .v = k, .o = q, .lse = lse, .scale = 1, .causal = causal},
        backward.stream());
    const std::int64_t pairs = B * H * visible_pairs(T, S, causal);
    EXPECT_EQ(forward.work().matmul_flops, pairs * 4 * D);
    EXPECT_EQ(backward.work().matmul_flops, pairs * 10 * D);
    EXPECT_GE(forward.work().flops, forward.work().matmul_flops);
    EXPECT_GE(backward.work().flops, backward.work().matmul_flops);
  }
}

TEST_F(CountedOnMeta, WorkOfSeveralCallsAddsUp) {
  const Tensor c = like(DType::f32, {4, 5}), a = like(DType::f32, {4, 6}), b = like(DType::f32, {6, 5});
  MetaDevice device;
  for (int i = 0; i < 3; ++i) matmul({.c = c, .a = a, .b = b}, device.stream());
  EXPECT_EQ(device.work().calls, 3);
  EXPECT_EQ(device.work().matmul_flops, 3 * 2 * 4 * 5 * 6);
}

// What a case is called to be fast at is counted the same way: its sizes cost nothing here.
TEST_F(CountedOnMeta, SpeedCasesHaveWork) {
  MetaDevice device;
  for (const DType dtype : kFloatTypes)
    for (const KernelCase& kernel : speed_cases(dtype)) {
      const meta::Work before = device.work();
      CaseRun run(kernel, device.memory());
      run.run(device.stream());
      EXPECT_GT(device.work().bytes_written, before.bytes_written) << kernel.name();
    }
}

}  // namespace
}  // namespace lockstep::tests
