// Ring attention in bf16 by thread ranks that share a GPU: what attention of the whole sample gives on the cpu in fp32,
// forward and gradients, of one document and of several, with heads that fused kernels take.
#include "parallel/ring_attention.h"

#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "comm/threads/world.h"
#include "gpu/comm_order.h"
#include "kernels/cuda/attention/hopper_attention.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

struct RingCase {
  std::int64_t ring, D;
  std::int64_t mean;  // of the documents' tokens; 0: each sample is one
};

class RingOnGpu : public ::testing::TestWithParam<RingCase> {
 protected:
  using Values = std::vector<double>;
  static constexpr std::int64_t B = 2, T = 768, H = 4, K = 2;

  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
    const std::int64_t D = GetParam().D;
    const auto numbers = [&](std::int64_t heads, std::uint64_t seed) {
      return box_.make(
          DType::f32, {B, T, heads, D},
          [](std::uint64_t s, std::int64_t i) { return round_to(DType::bf16, normal_number(s, i)); }, seed);
    };
    q_ = numbers(H, 1), k_ = numbers(K, 2), v_ = numbers(K, 3), d_o_ = numbers(H, 4);
    o_ = box_.make(DType::f32, {B, T, H, D}), dq_ = box_.make(DType::f32, {B, T, H, D});
    dk_ = box_.make(DType::f32, {B, T, K, D}), dv_ = box_.make(DType::f32, {B, T, K, D});
    const Tensor lse = box_.make(DType::f32, {B, H, T});
    const Tensor starts = GetParam().mean > 0 ? box_.make(DType::i32, {B, T}, all_starts()) : Tensor{};
    Stream& cpu = box_.stream(2);
    attention_forward(
        {.o = o_, .lse = lse, .q = q_, .k = k_, .v = v_, .scale = scale(), .documents = {.starts = starts}}, cpu);
    attention_backward({.dq = dq_,
                        .dk = dk_,
                        .dv = dv_,
                        .d_o = d_o_,
                        .q = q_,
                        .k = k_,
                        .v = v_,
                        .o = o_,
                        .lse = lse,
                        .scale = scale(),
                        .documents = {.starts = starts}},
                       cpu);
  }

  static double scale() { return 1 / std::sqrt(static_cast<double>(GetParam().D)); }
  static Values all_starts() {
    Values starts;
    for (std::int64_t b = 0; b < B; ++b) {
      std::int64_t start = 0;
      for (std::int64_t t = 0; t < T; ++t) {
        if (uniform_number(static_cast<std::uint64_t>(9 + b), t) * static_cast<double>(GetParam().mean) < 1) start = t;
        starts.push_back(static_cast<double>(start));
      }
    }
    return starts;
  }
  // A rank's tokens of (B, T, each), as numbers.
  static Values own(const Values& all, const ContextSplit& split) {
    const std::int64_t each = std::ssize(all) / (B * T);
    Values values;
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < split.tokens(T); ++t)
        for (std::int64_t i = 0; i < each; ++i)
          values.push_back(all[static_cast<std::size_t>((b * T + split.position(T, t)) * each + i)]);
    return values;
  }

  struct Result {
    Values o, dq, dk, dv;
    bool operator==(const Result&) const = default;
  };
  Result attend(Communicator& ranks, GpuRank& gpu, const ContextSplit& split) const {
    const std::int64_t D = GetParam().D, t = split.tokens(T), segment = split.segment(T);
    const auto room = [&](const Shape& shape, DType type = DType::bf16) {
      return gpu.take(type, shape.elements()).reshape(shape);
    };
    const auto put = [&](const Values& values, const Shape& shape, DType type = DType::bf16) {
      const Tensor to = room(shape, type);
      std::vector<std::byte> bytes(static_cast<std::size_t>(to.bytes()));
      for (std::size_t i = 0; i < values.size(); ++i)
        store_element(bytes.data() + i * static_cast<std::size_t>(size_of(type)), type, values[i]);
      upload(to, bytes.data(), gpu.stream());
      return to;
    };
    const auto of = [&](const Tensor& all, std::int64_t heads) {
      return put(own(TensorBox::read(all), split), {B, t, heads, D});
    };
    const Tensor q = of(q_, H), k = of(k_, K), v = of(v_, K), d_o = of(d_o_, H);
    const Tensor o = room({B, t, H, D}), dq = room({B, t, H, D}), dk = room({B, t, K, D}), dv = room({B, t, K, D});
    const Tensor lse = room({split.segments() * B * H * segment}, DType::f32);
    RingAttention::Documents documents;
    if (GetParam().mean > 0) documents.starts = put(own(all_starts(), split), {B, t}, DType::i32);
    AttentionSizes sizes{.B = B,
                         .T = segment,
                         .S = segment,
                         .H = H,
                         .K = K,
                         .D = D,
                         .dtype = DType::bf16,
                         .causal = false,
                         .documents = GetParam().mean > 0};
    EXPECT_EQ(cuda::why_not_hopper(sizes), nullptr);

    const RingAttention ring(ranks, split, true,
                             {.B = B, .T = T, .heads = H, .keys = K, .width = D, .dtype = DType::bf16}, gpu.memory());
    ring.forward({.o = o,
                  .lse = lse,
                  .q = q,
                  .k = k,
                  .v = v,
                  .scale = scale(),
                  .documents = documents,
                  .part = room({B, segment, H, D}),
                  .part_lse = room({B, H, segment}, DType::f32),
                  .sums = room({B, t, H, D}, DType::f32)},
                 gpu.stream());
    RingAttention::Turning turning = ring.begin(k, v, gpu.stream());
    ring.backward({.dq = dq,
                   .dk = dk,
                   .dv = dv,
                   .d_o = d_o,
                   .q = q,
                   .k = k,
                   .v = v,
                   .o = o,
                   .lse = lse,
                   .scale = scale(),
                   .documents = documents,
                   .workspace = room({attention_workspace(Device::cuda, sizes) / 4}, DType::f32),
                   .part_dq = room({B, segment, H, D}),
                   .sums = room({4 * B * t * K * D}, DType::f32),
                   .dq_sums = room({B, t, H, D}, DType::f32)},
                  turning, gpu.stream());
    const auto read = [&](const Tensor& from) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(from.bytes()));
      download(bytes.data(), from, gpu.stream());
      Values values;
      for (std::int64_t i = 0; i < from.elements(); ++i)
        values.push_back(load_element(bytes.data() + i * size_of(from.dtype()), from.dtype()));
      return values;
    };
    return {read(o), read(dq), read(dk), read(dv)};
  }

  // By norm, of a rank's tokens.
  static double error(const Values& got, const Tensor& all, const ContextSplit& split) {
    const Values want = own(TensorBox::read(all), split);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      size += want[i] * want[i];
    }
    return std::sqrt(difference / size);
  }

  TensorBox box_;
  Tensor q_, k_, v_, d_o_, o_, dq_, dk_, dv_;
};

TEST_P(RingOnGpu, GivesWhatTheWholeSampleGives) {
  const int ring = static_cast<int>(GetParam().ring);
  // Probabilities, gradients of scores, outputs, and each segment's part of a sum are rounded, each once.
  const double tolerance = 3 * unit_roundoff(DType::bf16);
  run_ranks(ring, [&](std::unique_ptr<Communicator> threads) {
    GpuRank gpu(std::int64_t{256} << 20);
    const auto ranks = on_stream(std::move(threads), gpu.stream());
    const ContextSplit split{.rank = ranks->rank(), .ring = ring, .zigzag = true};
    const Result found = attend(*ranks, gpu, split);
    EXPECT_LT(error(found.o, o_, split), tolerance) << "o of rank " << ranks->rank();
    EXPECT_LT(error(found.dq, dq_, split), tolerance) << "dq of rank " << ranks->rank();
    EXPECT_LT(error(found.dk, dk_, split), tolerance) << "dk of rank " << ranks->rank();
    EXPECT_LT(error(found.dv, dv_, split), tolerance) << "dv of rank " << ranks->rank();
    EXPECT_TRUE(attend(*ranks, gpu, split) == found) << "another run, other bits";
    gpu.stream().synchronize();
  });
}

INSTANTIATE_TEST_SUITE_P(Rings, RingOnGpu,
                         ::testing::Values(RingCase{2, 64, 0}, RingCase{4, 64, 0}, RingCase{2, 128, 0},
                                           RingCase{4, 128, 0}, RingCase{2, 64, 150}, RingCase{4, 128, 150}),
                         [](const auto& info) {
                           const RingCase& c = info.param;
                           return fmt::format("cp{}_d{}{}", c.ring, c.D,
                                              c.mean > 0 ? fmt::format("_documents{}", c.mean) : "");
                         });

}  // namespace
}  // namespace lockstep::tests
