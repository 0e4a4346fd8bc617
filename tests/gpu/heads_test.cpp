// Heads on the GPU beyond the table of cases: copied onto themselves, and attention over parts of the keys merged, as
// context parallelism does it.
#include "kernels/heads.h"

#include "kernels/attention.h"
#include "kernels/attention_merge.h"
#include "support/case_names.h"
#include "support/case_run.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

class HeadsOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
    memory_ = make_memory(Device::cuda, ledger_);
    stream_ = make_stream(*memory_, 1);
  }

  Tensor make(DType type, const Shape& shape, const Recipe& fill = constant(NAN), std::uint64_t seed = 1) {
    buffers_.push_back(memory_->allocate(shape.elements() * size_of(type), Tag::data));
    const Tensor t = view(buffers_.back(), type, shape);
    std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
    for (std::int64_t i = 0; i < t.elements(); ++i)
      store_element(bytes.data() + i * size_of(type), type, fill(seed, i));
    upload(t, bytes.data(), *stream_);
    return t;
  }
  std::vector<double> read(const Tensor& t) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
    download(bytes.data(), t, *stream_);
    std::vector<double> values;
    for (std::int64_t i = 0; i < t.elements(); ++i)
      values.push_back(load_element(bytes.data() + i * size_of(t.dtype()), t.dtype()));
    return values;
  }

  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
};

TEST_F(HeadsOnTheGpu, OntoThemselvesDouble) {
  for (const DType type : kFloatTypes)
    for (const std::int64_t width : {5, 64}) {
      const Tensor all = make(type, {3, 50, 4, width}, constant(1.5)), some = all.slice(1, 7, 31).slice(2, 1, 2);
      copy_heads({.y = some, .x = some}, *stream_);
      copy_heads({.y = some, .x = some, .accumulate = true}, *stream_);
      const std::vector<double> got = read(all);
      for (std::int64_t i = 0; i < all.elements(); ++i) {
        const std::int64_t h = i / width % 4, t = i / width / 4 % 50;
        const bool doubled = t >= 7 && t < 38 && (h == 1 || h == 2);
        ASSERT_EQ(got[i], doubled ? 3 : 1.5) << name_of(type) << " " << width << ", element " << i;
      }
    }
}

TEST_F(HeadsOnTheGpu, OfNothingAreNothing) {
  const Tensor y = make(DType::f32, {2, 3, 4, 8}, constant(1)), x = make(DType::bf16, {2, 3, 4, 8});
  const Tensor lse(y.raw(), DType::f32, Device::cuda, {2, 4, 0});
  for (int dim = 0; dim < 4; ++dim) copy_heads({.y = y.slice(dim, 1, 0), .x = x.slice(dim, 1, 0)}, *stream_);
  attention_merge({.o = y.slice(1, 1, 0), .lse = lse, .part = x.slice(1, 1, 0), .part_lse = lse}, *stream_);
  for (const double v : read(y)) ASSERT_EQ(v, 1);
}

// The last part is masked, those before it are seen whole.
TEST_F(HeadsOnTheGpu, AttentionInPartsIsThatOfTheWhole) {
  constexpr std::int64_t B = 2, T = 70, S = 200, H = 6, K = 2, D = 64;
  constexpr std::int64_t kCuts[] = {0, 1, 64, 130, S};
  for (const auto& [type, result, allowed] : {std::tuple{DType::f64, DType::f64, 1e-13},
                                              {DType::f32, DType::f32, 1e-5},
                                              // One rounding of each side, of values up to about 3.5.
                                              {DType::bf16, DType::f32, 3.5 * 2 * unit_roundoff(DType::bf16)}}) {
    const DType wide = accumulator_of(type);
    const Tensor q = make(type, {B, T, H, D}, normal(), 1), k = make(type, {B, S, K, D}, normal(), 2),
                 v = make(type, {B, S, K, D}, normal(), 3);
    const Tensor whole = make(type, {B, T, H, D}), whole_lse = make(wide, {B, H, T}), part = make(type, {B, T, H, D}),
                 part_lse = make(wide, {B, H, T}), sum = make(result, {B, T, H, D}), lse = make(wide, {B, H, T});
    const double scale = 0.125;
    attention_forward({.o = whole, .lse = whole_lse, .q = q, .k = k, .v = v, .scale = scale}, *stream_);
    for (int i = 0; i < 4; ++i) {
      const std::int64_t begin = kCuts[i], count = kCuts[i + 1] - begin;
      attention_forward({.o = part,
                         .lse = part_lse,
                         .q = q,
                         .k = k.slice(1, begin, count),
                         .v = v.slice(1, begin, count),
                         .scale = scale,
                         .causal = i == 3},
                        *stream_);
      attention_merge({.o = sum, .lse = lse, .part = part, .part_lse = part_lse, .first = i == 0}, *stream_);
    }
    const std::vector<double> o = read(sum), want = read(whole), got_lse = read(lse), want_lse = read(whole_lse);
    for (std::size_t i = 0; i < o.size(); ++i)
      ASSERT_NEAR(o[i], want[i], allowed) << name_of(type) << ", element " << i;
    for (std::size_t i = 0; i < got_lse.size(); ++i)
      ASSERT_NEAR(got_lse[i], want_lse[i], type == DType::f64 ? 1e-13 : 5e-5) << name_of(type) << ", query " << i;
  }
}

// A side that saw no keys is not looked at, NaN or not.
class MergeOnTheGpu : public HeadsOnTheGpu, public ::testing::WithParamInterface<int> {};

TEST_P(MergeOnTheGpu, PassesOverSidesThatSawNoKeys) {
  const KernelCase& kernel = kernel_cases()[GetParam()];
  CaseRun run(kernel, *memory_);
  const Shape& shape = kernel.operands[0].shape;  // o, lse, part, part_lse
  for (const int side : {0, 2}) {
    if (kernel.operands[static_cast<std::size_t>(side)].role == Role::out) continue;
    std::vector<double> value = run.given()[side].value;
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const std::int64_t head = i / shape[3], h = head % shape[2], t = head / shape[2] % shape[1],
                         b = head / shape[2] / shape[1];
      if (std::isinf(run.given()[side + 1][(b * shape[2] + h) * shape[1] + t])) value[i] = NAN;
    }
    run.set(side, value);
  }
  run.run(*stream_);
  std::vector<HostTensor> want = run.given();
  kernel.reference(want);
  for (const int out : {0, 1}) {
    for (const double v : want[static_cast<std::size_t>(out)].value) ASSERT_FALSE(std::isnan(v));
    EXPECT_EQ(difference(run.read(out), want[static_cast<std::size_t>(out)], accumulator_of(kernel.dtype)), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Case, MergeOnTheGpu, ::testing::ValuesIn(cases_where([](const KernelCase& kernel) {
                           return kernel.op == "attention_merge";
                         })),
                         case_name);

}  // namespace
}  // namespace lockstep::tests
