// cuDNN's attention beside the plain kernel: the same gradients within 16 bits, and the same bits where that is
// claimed.
//
// Inputs are views of one fused projection, as the model has them. The plain kernel computes in fp32 from the same
// 16-bit numbers. Errors are of whole tensors, by norm. An element's terms are rounded once (with grouped heads dk's
// and dv's twice) and the element itself once, each by at most one unit of the type and about a third of that in the
// mean; so two units are roomy for rounding, and far below what a wrong mask, scale or head would do.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/attention/cudnn_attention.h"
#include "support/host_tensor.h"
#include "support/recipes.h"
#include "tensor/cuda/device.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

struct FusedCase {
  DType dtype;
  std::int64_t B, H, K, T, D;
  bool causal = true;
};

using Bytes = std::vector<std::byte>;

class FusedAttention : public ::testing::TestWithParam<FusedCase> {
 protected:
  // One stream for all tests, since it keeps the plans.
  struct Gpu {
    Ledger ledger;
    std::unique_ptr<Memory> memory = make_memory(Device::cuda, ledger);
    cuda::Stream stream{*memory};
  };
  static void SetUpTestSuite() {
    if (cuda::gpu_count() > 0) gpu_ = std::make_unique<Gpu>();
  }
  static void TearDownTestSuite() { gpu_.reset(); }
  void SetUp() override {
    if (!gpu_) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
    const FusedCase& c = GetParam();
    const Shape fused{c.B, c.T, c.H + 2 * c.K, c.D}, mixed{c.B, c.T, c.H, c.D};
    narrow_ = make(c.dtype, fused, mixed);
    wide_ = make(DType::f32, fused, mixed);
    fill(narrow_.qkv, wide_.qkv, 1);
    fill(narrow_.d_o, wide_.d_o, 2);
  }

  struct Set {
    Tensor qkv, d_qkv, o, d_o, lse;
  };
  Set make(DType type, const Shape& fused, const Shape& mixed) {
    const FusedCase& c = GetParam();
    return {tensor(type, fused), tensor(type, fused), tensor(type, mixed), tensor(type, mixed),
            tensor(DType::f32, {c.B, c.H, c.T})};
  }
  Tensor tensor(DType type, const Shape& shape) {
    buffers_.push_back(gpu_->memory->allocate(shape.elements() * size_of(type), Tag::data));
    return view(buffers_.back(), type, shape);
  }
  // The same numbers, which the narrow type has, in both.
  void fill(const Tensor& narrow, const Tensor& wide, std::uint64_t seed) {
    std::vector<double> values(static_cast<std::size_t>(narrow.elements()));
    const Recipe normal_numbers = normal();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = round_to(narrow.dtype(), normal_numbers(seed, static_cast<std::int64_t>(i)));
    write(narrow, values);
    write(wide, values);
  }
  void write(const Tensor& t, const std::vector<double>& values) {
    Bytes bytes(static_cast<std::size_t>(t.bytes()));
    for (std::size_t i = 0; i < values.size(); ++i)
      store_element(bytes.data() + i * static_cast<std::size_t>(size_of(t.dtype())), t.dtype(), values[i]);
    upload(t, bytes.data(), stream());
  }
  Bytes bytes(const Tensor& t) {
    Bytes all(static_cast<std::size_t>(t.bytes()));
    download(all.data(), t, stream());
    return all;
  }
  std::vector<double> read(const Tensor& t) {
    const Bytes all = bytes(t);
    std::vector<double> values(static_cast<std::size_t>(t.elements()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = load_element(all.data() + i * static_cast<std::size_t>(size_of(t.dtype())), t.dtype());
    return values;
  }
  void poison(const Tensor& t) { write(t, std::vector<double>(static_cast<std::size_t>(t.elements()), NAN)); }

  AttentionForwardArgs forward_args(const Set& s) const {
    const FusedCase& c = GetParam();
    return {.o = s.o,
            .lse = s.lse,
            .q = s.qkv.slice(2, 0, c.H),
            .k = s.qkv.slice(2, c.H, c.K),
            .v = s.qkv.slice(2, c.H + c.K, c.K),
            .scale = scale(),
            .causal = c.causal};
  }
  AttentionBackwardArgs backward_args(const Set& s, bool deterministic, const Tensor& workspace) const {
    const FusedCase& c = GetParam();
    return {.dq = s.d_qkv.slice(2, 0, c.H),
            .dk = s.d_qkv.slice(2, c.H, c.K),
            .dv = s.d_qkv.slice(2, c.H + c.K, c.K),
            .d_o = s.d_o,
            .q = s.qkv.slice(2, 0, c.H),
            .k = s.qkv.slice(2, c.H, c.K),
            .v = s.qkv.slice(2, c.H + c.K, c.K),
            .o = s.o,
            .lse = s.lse,
            .scale = scale(),
            .causal = c.causal,
            .deterministic = deterministic,
            .workspace = workspace};
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(GetParam().D)); }
  AttentionSizes sizes(bool deterministic) const {
    const FusedCase& c = GetParam();
    return {.B = c.B,
            .T = c.T,
            .S = c.T,
            .H = c.H,
            .K = c.K,
            .D = c.D,
            .dtype = c.dtype,
            .causal = c.causal,
            .deterministic = deterministic};
  }
  Tensor workspace(bool deterministic) {
    const AttentionSizes s = sizes(deterministic);
    return tensor(DType::f32, {cuda::attention_reserve(s, cuda::attention_part(s)).total() / 4});
  }

  // Both forwards; then both backwards start from the same o and lse.
  void forwards() {
    poison(narrow_.o);
    poison(narrow_.lse);
    ASSERT_EQ(cuda::cudnn_attention_forward(forward_args(narrow_), stream()), "");
    attention_forward(forward_args(wide_), stream());
  }
  void plain_backward() {
    write(wide_.o, read(narrow_.o));
    write(wide_.lse, read(narrow_.lse));
    attention_backward(backward_args(wide_, true, {}), stream());
  }
  // Fails with the reason where cuDNN does not take it.
  Bytes fused_backward(bool deterministic, const Tensor& workspace,
                       std::int64_t bound = cuda::kDeterministicWorkspace) {
    poison(narrow_.d_qkv);
    EXPECT_EQ(cuda::cudnn_attention_backward(backward_args(narrow_, deterministic, workspace), stream(), bound), "");
    return bytes(narrow_.d_qkv);
  }
  // (As its base: an argument of type cuda::Stream would make a kernel's name find its twin in namespace cuda too.)
  static Stream& stream() { return gpu_->stream; }

  static double error(const std::vector<double>& got, const std::vector<double>& want) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      size += want[i] * want[i];
    }
    return std::sqrt(difference / size);
  }
  // dq, dk and dv apart, since one may be far larger than another.
  void expect_gradients() {
    const FusedCase& c = GetParam();
    const std::vector<double> got = read(narrow_.d_qkv), want = read(wide_.d_qkv);
    std::array<std::vector<double>, 3> of_got, of_want;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::int64_t head = static_cast<std::int64_t>(i) / c.D % (c.H + 2 * c.K);
      const std::size_t which = head < c.H ? 0 : head < c.H + c.K ? 1 : 2;
      of_got[which].push_back(got[i]);
      of_want[which].push_back(want[i]);
    }
    EXPECT_LT(error(of_got[0], of_want[0]), tolerance()) << "dq";
    EXPECT_LT(error(of_got[1], of_want[1]), tolerance()) << "dk";
    EXPECT_LT(error(of_got[2], of_want[2]), tolerance()) << "dv";
  }
  double tolerance() const { return 2 * unit_roundoff(GetParam().dtype); }

  static inline std::unique_ptr<Gpu> gpu_;
  std::vector<Buffer> buffers_;
  Set narrow_, wide_;
};

TEST_P(FusedAttention, ForwardIsThePlainKernelsWithin16Bits) {
  forwards();
  EXPECT_LT(error(read(narrow_.o), read(wide_.o)), tolerance());
  EXPECT_LT(error(read(narrow_.lse), read(wide_.lse)), 1e-5);  // fp32 throughout
  const Bytes first = bytes(narrow_.o);
  forwards();
  EXPECT_TRUE(bytes(narrow_.o) == first) << "another run, other bits";
}

TEST_P(FusedAttention, BackwardRepeatsToTheBit) {
  forwards();
  plain_backward();
  const Tensor room = workspace(true);
  const Bytes first = fused_backward(true, room);
  expect_gradients();
  for (int run = 0; run < 3; ++run) EXPECT_TRUE(fused_backward(true, room) == first) << "another run, other bits";
}

TEST_P(FusedAttention, BackwardInPartsToo) {
  forwards();
  plain_backward();
  const Tensor room = workspace(true);
  const std::int64_t of_sample = cuda::attention_reserve(sizes(true), {1, GetParam().K}).total();
  for (const std::int64_t bound : {of_sample, std::int64_t{1}}) {  // sample by sample, then head by head
    const Bytes first = fused_backward(true, room, bound);
    expect_gradients();
    for (int run = 0; run < 3; ++run)
      EXPECT_TRUE(fused_backward(true, room, bound) == first) << "another run, other bits";
  }
}

TEST_P(FusedAttention, BackwardOfAnyOrderIsAsClose) {
  forwards();
  plain_backward();
  const Tensor room = workspace(false);
  for (int run = 0; run < 3; ++run) {
    fused_backward(false, room);
    expect_gradients();
  }
}

TEST_P(FusedAttention, IsTheSameWhenCapturedAndReplayed) {
  forwards();
  const Tensor room = workspace(true);
  const Bytes d_qkv = fused_backward(true, room), o = bytes(narrow_.o);
  const std::unique_ptr<Replay> replay = stream().capture([&] {
    EXPECT_EQ(cuda::cudnn_attention_forward(forward_args(narrow_), stream()), "");
    EXPECT_EQ(cuda::cudnn_attention_backward(backward_args(narrow_, true, room), stream()), "");
  });
  poison(narrow_.d_qkv);
  poison(narrow_.o);
  ASSERT_TRUE(replay);
  replay->run();
  EXPECT_TRUE(bytes(narrow_.o) == o);
  EXPECT_TRUE(bytes(narrow_.d_qkv) == d_qkv);
}

TEST_P(FusedAttention, LeavesToThePlainKernelWhatHasNoWorkspace) {
  forwards();
  plain_backward();
  EXPECT_NE(cuda::cudnn_attention_backward(backward_args(narrow_, true, {}), stream()), "");
  poison(narrow_.d_qkv);
  attention_backward(backward_args(narrow_, true, {}), stream());
  expect_gradients();
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FusedAttention,
    ::testing::Values(FusedCase{DType::bf16, 2, 4, 4, 128, 64}, FusedCase{DType::bf16, 3, 8, 2, 512, 128},
                      FusedCase{DType::bf16, 2, 6, 3, 201, 64}, FusedCase{DType::bf16, 1, 2, 2, 1000, 80},
                      FusedCase{DType::f16, 2, 4, 2, 200, 64}, FusedCase{DType::f16, 1, 3, 3, 384, 128},
                      FusedCase{DType::bf16, 2, 6, 3, 201, 64, false}, FusedCase{DType::f16, 1, 2, 2, 384, 128, false}),
    [](const auto& info) {
      const FusedCase& c = info.param;
      return fmt::format("{}_b{}_h{}_k{}_t{}_d{}{}", name_of(c.dtype), c.B, c.H, c.K, c.T, c.D,
                         c.causal ? "" : "_full");
    });

}  // namespace
}  // namespace lockstep::tests
