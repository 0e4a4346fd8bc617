// Hopper's attention beside the plain kernels: the same outputs and gradients within 16 bits, and the same bits in
// every run; under the causal mask, of a ring's pairs, and of documents.
//
// Inputs are views of one fused projection, as the model has them; the backward's o and lse are the plain kernel's,
// which computes in fp32 from the same 16-bit numbers. What is to be written, and the workspace, hold NaN before.
// Errors are of whole tensors, by norm: an element's terms are rounded once and the element once, each by at most one
// unit of the type and about a third of that in the mean, so two units are roomy.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/cuda/attention/hopper_attention.h"
#include "support/host_tensor.h"
#include "support/recipes.h"
#include "tensor/cuda/device.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

// Without the mask, queries come after all keys, as a ring's do. Documents have `mean` tokens, more or less; 0: none.
struct HopperCase {
  std::int64_t B, H, K, T, D;
  std::int64_t S = T;
  bool causal = true;
  std::int64_t mean = 0;
};

using Bytes = std::vector<std::byte>;

class HopperAttention : public ::testing::TestWithParam<HopperCase> {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
    memory_ = make_memory(Device::cuda, ledger_);
    stream_ = std::make_unique<cuda::Stream>(*memory_);
    const HopperCase& c = GetParam();
    narrow_ = make(DType::bf16);
    narrow_.lse = tensor(DType::f32, {c.B, c.H, c.T});
    if (c.mean > 0) {
      starts_ = tensor(DType::i32, {c.B, c.T});
      write(starts_, documents(1));
    }
    workspace_ = tensor(DType::f32, {cuda::hopper_reserve(sizes()).total() / 4});
  }

  struct Set {
    Tensor qkv, d_qkv, o, d_o, lse;
  };
  // Of each sample and token, where its document begins. Under no mask keys begin at kFirstKey and end before queries.
  std::vector<double> documents(std::uint64_t seed) const {
    const HopperCase& c = GetParam();
    std::vector<double> starts;
    for (std::int64_t b = 0; b < c.B; ++b) {
      std::int64_t start = 0;
      for (std::int64_t at = 0; at < first_query() + c.T; ++at) {
        if (uniform_number(seed * 1000 + static_cast<std::uint64_t>(b), at) * static_cast<double>(c.mean) < 1)
          start = at;
        if (at >= first_query()) starts.push_back(static_cast<double>(start));
      }
    }
    return starts;
  }
  static constexpr std::int64_t kFirstKey = 5;  // without the mask
  std::int64_t first_query() const { return GetParam().causal ? 0 : kFirstKey + GetParam().S; }
  DocumentMask mask() const { return {.starts = starts_, .first_key = GetParam().causal ? 0 : kFirstKey}; }

  Set make(DType type) {
    const HopperCase& c = GetParam();
    const Shape fused{c.B, std::max(c.T, c.S), c.H + 2 * c.K, c.D}, mixed{c.B, c.T, c.H, c.D};
    return {tensor(type, fused), tensor(type, fused), tensor(type, mixed), tensor(type, mixed), {}};
  }
  Tensor tensor(DType type, const Shape& shape) {
    buffers_.push_back(memory_->allocate(shape.elements() * size_of(type), Tag::data));
    return view(buffers_.back(), type, shape);
  }
  std::vector<double> numbers(const Tensor& like, std::uint64_t seed) const {
    std::vector<double> values(static_cast<std::size_t>(like.elements()));
    const Recipe normal_numbers = normal();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = round_to(DType::bf16, normal_numbers(seed, static_cast<std::int64_t>(i)));
    return values;
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
  void poison(const Tensor& t) {
    const Bytes ones(static_cast<std::size_t>(t.bytes()), std::byte{0xff});  // a NaN in any type
    upload(t, ones.data(), stream());
  }

  // Numbers for the kernel alone: lse need not be that of the scores for runs to be compared with runs.
  void fill() {
    write(narrow_.qkv, numbers(narrow_.qkv, 1));
    write(narrow_.o, numbers(narrow_.o, 3));
    write(narrow_.d_o, numbers(narrow_.d_o, 2));
    std::vector<double> lse(static_cast<std::size_t>(narrow_.lse.elements()));
    for (std::size_t i = 0; i < lse.size(); ++i)
      lse[i] = 0.5 + std::log(1.0 + static_cast<double>(i % static_cast<std::size_t>(GetParam().T)));
    write(narrow_.lse, lse);
  }
  static Tensor queries(const Tensor& fused) { return fused.slice(1, 0, GetParam().T).slice(2, 0, GetParam().H); }
  static Tensor keys(const Tensor& fused, std::int64_t which) {
    const HopperCase& c = GetParam();
    return fused.slice(1, 0, c.S).slice(2, c.H + which * c.K, c.K);
  }
  AttentionForwardArgs forward_args(const Set& s) const {
    return {.o = s.o,
            .lse = s.lse,
            .q = queries(s.qkv),
            .k = keys(s.qkv, 0),
            .v = keys(s.qkv, 1),
            .scale = scale(),
            .causal = GetParam().causal,
            .documents = mask()};
  }
  // Numbers, and what the plain kernels make of them in fp32, forward and backward.
  Set fill_and_run_plain() {
    Set wide = make(DType::f32);
    wide.lse = narrow_.lse;
    for (const Set& s : {narrow_, wide}) {
      write(s.qkv, numbers(s.qkv, 1));
      write(s.d_o, numbers(s.d_o, 2));
    }
    attention_forward(forward_args(wide), stream());
    std::vector<double> o = read(wide.o);
    for (double& x : o) x = round_to(DType::bf16, x);
    write(narrow_.o, o);
    write(wide.o, o);
    attention_backward(args(wide, {}), stream());
    return wide;
  }

  AttentionBackwardArgs args(const Set& s, const Tensor& workspace) const {
    return {.dq = queries(s.d_qkv),
            .dk = keys(s.d_qkv, 0),
            .dv = keys(s.d_qkv, 1),
            .d_o = s.d_o,
            .q = queries(s.qkv),
            .k = keys(s.qkv, 0),
            .v = keys(s.qkv, 1),
            .o = s.o,
            .lse = s.lse,
            .scale = scale(),
            .causal = GetParam().causal,
            .documents = mask(),
            .workspace = workspace};
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(GetParam().D)); }
  AttentionSizes sizes() const {
    const HopperCase& c = GetParam();
    return {.B = c.B,
            .T = c.T,
            .S = c.S,
            .H = c.H,
            .K = c.K,
            .D = c.D,
            .dtype = DType::bf16,
            .causal = c.causal,
            .documents = c.mean > 0};
  }
  // Fails with the reason where it is not taken.
  Bytes run() {
    poison(narrow_.d_qkv);
    poison(workspace_);
    EXPECT_EQ(cuda::hopper_attention_backward(args(narrow_, workspace_), stream()), "");
    return bytes(narrow_.d_qkv);
  }
  Bytes run_forward() {
    poison(narrow_.o);
    poison(narrow_.lse);
    EXPECT_EQ(cuda::hopper_attention_forward(forward_args(narrow_), stream()), "");
    return bytes(narrow_.o);
  }
  // (As its base: an argument of type cuda::Stream would make a kernel's name find its twin in namespace cuda too.)
  Stream& stream() { return *stream_; }

  static double error(const std::vector<double>& got, const std::vector<double>& want) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      size += want[i] * want[i];
    }
    return std::sqrt(difference / size);
  }
  // dq, dk and dv apart, since one may be far larger than another.
  std::array<std::vector<double>, 3> gradients(const Tensor& d_qkv) {
    return gradients_of(bytes(d_qkv), d_qkv.dtype());
  }
  static std::array<std::vector<double>, 3> gradients_of(const Bytes& d_qkv, DType type = DType::bf16) {
    const HopperCase& c = GetParam();
    std::array<std::vector<double>, 3> apart;
    const auto each = static_cast<std::size_t>(size_of(type));
    for (std::size_t i = 0; i * each < d_qkv.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / c.D, head = row % (c.H + 2 * c.K);
      if (row / (c.H + 2 * c.K) % std::max(c.T, c.S) >= (head < c.H ? c.T : c.S)) continue;
      apart[head < c.H ? 0 : head < c.H + c.K ? 1 : 2].push_back(load_element(d_qkv.data() + i * each, type));
    }
    return apart;
  }

  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<cuda::Stream> stream_;
  std::vector<Buffer> buffers_;
  Set narrow_;
  Tensor workspace_, starts_;
};

TEST_P(HopperAttention, ForwardIsThePlainKernelsWithin16Bits) {
  Set wide = make(DType::f32);
  wide.lse = tensor(DType::f32, narrow_.lse.shape());
  for (const Set& s : {narrow_, wide}) write(s.qkv, numbers(s.qkv, 1));
  attention_forward(forward_args(wide), stream());
  const Bytes first = run_forward();
  EXPECT_LT(error(read(narrow_.o), read(wide.o)), 2 * unit_roundoff(DType::bf16));
  const std::vector<double> got = read(narrow_.lse), want = read(wide.lse);
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isinf(want[i]))
      ASSERT_EQ(got[i], want[i]) << "row " << i << ", which sees no keys";
    else
      ASSERT_NEAR(got[i], want[i], 1e-4) << "row " << i;
  }
  for (int again = 0; again < 4; ++again) EXPECT_TRUE(run_forward() == first) << "another run, other bits";
}

TEST_P(HopperAttention, GradientsAreThePlainKernelsWithin16Bits) {
  const Set wide = fill_and_run_plain();
  run();
  const auto got = gradients(narrow_.d_qkv), want = gradients(wide.d_qkv);
  const double tolerance = 2 * unit_roundoff(DType::bf16);
  EXPECT_LT(error(got[0], want[0]), tolerance) << "dq";
  EXPECT_LT(error(got[1], want[1]), tolerance) << "dk";
  EXPECT_LT(error(got[2], want[2]), tolerance) << "dv";
}

TEST_P(HopperAttention, RepeatsToTheBit) {
  fill();
  const Bytes first = run();
  for (int again = 0; again < 4; ++again) EXPECT_TRUE(run() == first) << "another run, other bits";
}

TEST_P(HopperAttention, IsTheSameForASampleAlone) {
  fill();
  const Bytes all = run();
  const std::int64_t b = GetParam().B - 1;
  poison(narrow_.d_qkv);
  AttentionBackwardArgs a = args(narrow_, workspace_);
  for (ConstTensor* t : {&a.q, &a.k, &a.v, &a.o, &a.d_o, &a.lse}) *t = t->slice(0, b, 1);
  for (Tensor* t : {&a.dq, &a.dk, &a.dv}) *t = t->slice(0, b, 1);
  if (starts_) a.documents.starts = starts_.slice(0, b, 1);
  ASSERT_EQ(cuda::hopper_attention_backward(a, stream()), "");
  const Bytes alone = bytes(narrow_.d_qkv);
  const auto of_sample = static_cast<std::ptrdiff_t>(all.size()) / GetParam().B;
  EXPECT_TRUE(std::equal(alone.end() - of_sample, alone.end(), all.end() - of_sample));
}

TEST_P(HopperAttention, IsTheSameWhenCapturedAndReplayed) {
  fill();
  const Bytes first = run();
  poison(workspace_);
  const std::unique_ptr<Replay> replay =
      stream().capture([&] { EXPECT_EQ(cuda::hopper_attention_backward(args(narrow_, workspace_), stream()), ""); });
  ASSERT_TRUE(replay);
  for (int again = 0; again < 2; ++again) {
    poison(narrow_.d_qkv);
    replay->run();
    EXPECT_TRUE(bytes(narrow_.d_qkv) == first);
  }
}

class HopperDocuments : public HopperAttention {};

TEST_P(HopperDocuments, AreOthersWhenReplayed) {
  fill();
  const auto both = [&] {
    const Bytes o = run_forward();  // and the backward's lse
    write(narrow_.o, numbers(narrow_.o, 3));
    return std::pair{o, run()};
  };
  write(starts_, documents(2));
  const auto others = both();
  write(starts_, documents(1));
  const auto before = both();
  EXPECT_FALSE(others == before);
  const std::unique_ptr<Replay> forward =
      stream().capture([&] { EXPECT_EQ(cuda::hopper_attention_forward(forward_args(narrow_), stream()), ""); });
  const std::unique_ptr<Replay> backward =
      stream().capture([&] { EXPECT_EQ(cuda::hopper_attention_backward(args(narrow_, workspace_), stream()), ""); });
  ASSERT_TRUE(forward && backward);
  write(starts_, documents(2));
  poison(narrow_.o);
  poison(narrow_.lse);
  forward->run();
  EXPECT_TRUE(bytes(narrow_.o) == others.first);
  write(narrow_.o, numbers(narrow_.o, 3));
  poison(narrow_.d_qkv);
  backward->run();
  EXPECT_TRUE(bytes(narrow_.d_qkv) == others.second);
}

TEST_P(HopperAttention, LeavesAloneWhatItCannotTake) {
  fill();
  poison(narrow_.d_qkv);
  const Bytes untouched = bytes(narrow_.d_qkv);
  const auto refuses = [&](auto change) {
    AttentionBackwardArgs a = args(narrow_, workspace_);
    change(a);
    return !cuda::hopper_attention_backward(a, stream()).empty();
  };
  EXPECT_TRUE(refuses([](AttentionBackwardArgs& a) { a.workspace = {}; }));
  EXPECT_TRUE(refuses([](AttentionBackwardArgs& a) { a.workspace = a.workspace.slice(0, 0, a.workspace.dim(0) - 1); }));
  EXPECT_TRUE(refuses([](AttentionBackwardArgs& a) { a.dropout.probability = 0.5; }));
  EXPECT_TRUE(refuses([](AttentionBackwardArgs& a) { a.q = a.q.slice(3, 8, a.q.dim(3) - 8); }));
  EXPECT_TRUE(bytes(narrow_.d_qkv) == untouched);
}

std::string name_of_case(const ::testing::TestParamInfo<HopperCase>& info) {
  const HopperCase& c = info.param;
  return fmt::format("b{}_h{}_k{}_t{}_d{}_s{}{}{}", c.B, c.H, c.K, c.T, c.D, c.S, c.causal ? "" : "_pair",
                     c.mean > 0 ? fmt::format("_documents{}", c.mean) : "");
}

// Blocks: one; fewer and more than a GPU runs at a time. Tokens: of whole tiles, and not.
INSTANTIATE_TEST_SUITE_P(Shapes, HopperAttention,
                         ::testing::Values(HopperCase{1, 1, 1, 128, 64}, HopperCase{2, 4, 4, 384, 64},
                                           HopperCase{2, 6, 3, 201, 64}, HopperCase{3, 8, 2, 512, 128},
                                           HopperCase{1, 4, 1, 1000, 128}, HopperCase{2, 2, 1, 64, 128},
                                           HopperCase{2, 16, 8, 2048, 64}, HopperCase{2, 8, 8, 1500, 128}),
                         name_of_case);

// A ring's: as many keys as queries, more, fewer.
INSTANTIATE_TEST_SUITE_P(Pairs, HopperAttention,
                         ::testing::Values(HopperCase{2, 4, 2, 256, 64, 256, false},
                                           HopperCase{1, 6, 3, 201, 128, 333, false},
                                           HopperCase{2, 4, 1, 1000, 64, 130, false},
                                           HopperCase{1, 16, 4, 2048, 128, 2048, false}),
                         name_of_case);

// Shorter than a tile, longer; between segments of a ring, where most queries see few keys or none.
const auto kSeveralDocuments =
    ::testing::Values(HopperCase{2, 4, 2, 384, 64, 384, true, 30}, HopperCase{2, 6, 2, 1111, 128, 1111, true, 100},
                      HopperCase{3, 8, 2, 2048, 64, 2048, true, 400}, HopperCase{2, 8, 8, 2048, 128, 2048, true, 700},
                      HopperCase{2, 4, 2, 512, 64, 700, false, 200}, HopperCase{2, 4, 4, 1000, 128, 300, false, 2000});
INSTANTIATE_TEST_SUITE_P(Documents, HopperAttention, kSeveralDocuments, name_of_case);
INSTANTIATE_TEST_SUITE_P(Documents, HopperDocuments, kSeveralDocuments, name_of_case);

}  // namespace
}  // namespace lockstep::tests
