// Attention on a GPU where it is not one causal sample: split over a ring of ranks, and of several documents, each
// beside a ceiling measured in the same run.
//
//   bench_attention
//
// A ring's ranks follow each other on one stream: what is given is the time of all their kernels together, merges and
// sums included, over that of one rank with all tokens (T 32,768). Messages are not sent: what arrives is what was
// there. Documents have log-normal lengths (mean 1,024, sigma 0.5; T 8,192); their work is that of the pairs of query
// and key that see each other. Their ceiling is cuDNN's causal attention (T 1,024, B 8), its faster backward.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "base/integers.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "parallel/ring_attention.h"
#include "plan/timed_tensors.h"
#include "tensor/cuda/device.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kHeads = 32, kKeyHeads = 8;

// A rank of a ring whose others are not there: what it would be sent is in its memory already.
class AloneInRing final : public Communicator {
 public:
  AloneInRing(int rank, int size) : Communicator(rank, size, "ring", Device::cuda) {}
  Started start(const Message& /*message*/) override { return std::make_unique<NothingPending>(); }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& /*place*/,
                                      const std::string& /*name*/) override {
    return nullptr;
  }
};

RunSpec on_gpu() {
  RunSpec run;
  run.run.device = RunDevice::cuda;
  run.precision.compute = Precision::bf16;
  return run;
}

struct Times {
  double forward = 0, backward = 0;
  double both() const { return forward + backward; }
};

AttentionSizes sizes_of(std::int64_t B, std::int64_t T, std::int64_t D, bool deterministic = true) {
  return {.B = B,
          .T = T,
          .S = T,
          .H = kHeads,
          .K = kKeyHeads,
          .D = D,
          .dtype = DType::bf16,
          .deterministic = deterministic};
}

// One rank's kernels of one layer.
Times ring_rank(std::int64_t rank, std::int64_t ring, std::int64_t T, std::int64_t D) {
  const ContextSplit split{.rank = rank, .ring = ring, .zigzag = true};
  const std::int64_t t = split.tokens(T), segment = split.segment(T);
  TimedTensors d(on_gpu(), TimedTensors::Kind::real);
  AloneInRing alone(static_cast<int>(rank), static_cast<int>(ring));
  const RingAttention attention(alone, split, true,
                                {.B = 1, .T = T, .heads = kHeads, .keys = kKeyHeads, .width = D, .dtype = DType::bf16},
                                d.memory());
  const auto queries = [&](DType type = DType::bf16) { return d.tensor({1, t, kHeads, D}, type); };
  const auto keys = [&] { return d.tensor({1, t, kKeyHeads, D}); };
  const bool turns = ring > 1;
  RingAttention::Forward f{.o = queries(),
                           .lse = d.sums({kHeads * t}),
                           .q = queries(),
                           .k = keys(),
                           .v = keys(),
                           .scale = 1 / std::sqrt(static_cast<double>(D))};
  if (turns) {
    f.part = d.tensor({1, segment, kHeads, D});
    f.part_lse = d.sums({1, kHeads, segment});
    f.sums = queries(DType::f32);
  }
  RingAttention::Backward b{
      .dq = queries(),
      .dk = keys(),
      .dv = keys(),
      .d_o = queries(),
      .q = f.q,
      .k = f.k,
      .v = f.v,
      .o = f.o,
      .lse = f.lse,
      .scale = f.scale,
  };
  AttentionSizes pair = sizes_of(1, segment, D);
  std::int64_t bytes = attention_workspace(Device::cuda, pair);
  pair.causal = false;
  bytes = std::max(bytes, attention_workspace(Device::cuda, pair));
  b.workspace = d.room({ceil_div(bytes, 4)}, DType::f32);
  if (turns) {
    b.part_dq = d.tensor({1, segment, kHeads, D});
    b.sums = d.sums({4 * t * kKeyHeads * D});
    b.dq_sums = queries(DType::f32);
  }
  return {.forward = seconds_of_one([&] { attention.forward(f, d.stream()); }, d.stream()),
          .backward = seconds_of_one(
              [&] {
                RingAttention::Turning turning = attention.begin(b.k, b.v, d.stream());
                attention.backward(b, turning, d.stream());
              },
              d.stream())};
}

void compare_rings(std::int64_t T, std::int64_t D) {
  const double flops = 2.0 * static_cast<double>(kHeads * T * T * D);  // of the causal forward
  Times one;
  for (const std::int64_t ring : {1, 2, 4}) {
    Times all;
    for (std::int64_t rank = 0; rank < ring; ++rank) {
      const Times own = ring_rank(rank, ring, T, D);
      all.forward += own.forward, all.backward += own.backward;
    }
    if (ring == 1) one = all;
    fmt::print("ring of {}   T {}  D {:>3}   forward {:7.2f} ms {:5.0f} TFLOP/s   backward {:7.2f} ms {:5.0f} TFLOP/s",
               ring, T, D, all.forward * 1e3, flops / all.forward / 1e12, all.backward * 1e3,
               2.5 * flops / all.backward / 1e12);
    if (ring > 1)
      fmt::print("   over one rank: {:.3f} {:.3f}, both {:.3f} (bound 1.15)", all.forward / one.forward,
                 all.backward / one.backward, all.both() / one.both());
    fmt::print("\n");
    std::fflush(stdout);
  }
}

struct Documents {
  std::vector<std::int32_t> starts;  // (B, T)
  double pairs = 0;                  // of all samples, of one head
};

Documents log_normal(std::int64_t B, std::int64_t T, double mean, double sigma) {
  Documents made;
  std::uint64_t state = 1;
  const auto uniform = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 11) + 0.5) * 0x1p-53;
  };
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t at = 0; at < T;) {
      const double z = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
      const double length = std::exp(std::log(mean) - sigma * sigma / 2 + sigma * z);
      const std::int64_t n = std::clamp<std::int64_t>(std::llround(length), 1, T - at);
      made.starts.insert(made.starts.end(), static_cast<std::size_t>(n), static_cast<std::int32_t>(at));
      made.pairs += 0.5 * static_cast<double>(n * n);
      at += n;
    }
  return made;
}

using Forward = std::function<void(const AttentionForwardArgs&, Stream&)>;
using Backward = std::function<void(const AttentionBackwardArgs&, Stream&)>;

// With documents, of those.
Times attention(std::int64_t B, std::int64_t T, std::int64_t D, const Documents* documents, bool deterministic,
                const Forward& forward, const Backward& backward) {
  TimedTensors d(on_gpu(), TimedTensors::Kind::real);
  const auto queries = [&] { return d.tensor({B, T, kHeads, D}); };
  const auto keys = [&] { return d.tensor({B, T, kKeyHeads, D}); };
  AttentionForwardArgs f{.o = queries(),
                         .lse = d.sums({B, kHeads, T}),
                         .q = queries(),
                         .k = keys(),
                         .v = keys(),
                         .scale = 1 / std::sqrt(static_cast<double>(D))};
  AttentionBackwardArgs b{.dq = queries(),
                          .dk = keys(),
                          .dv = keys(),
                          .d_o = queries(),
                          .q = f.q,
                          .k = f.k,
                          .v = f.v,
                          .o = f.o,
                          .lse = f.lse,
                          .scale = f.scale,
                          .deterministic = deterministic};
  AttentionSizes sizes = sizes_of(B, T, D, deterministic);
  std::int64_t bytes = std::max(attention_workspace(Device::cuda, sizes),
                                cuda::attention_reserve(sizes, cuda::attention_part(sizes)).total());
  if (documents) {
    sizes.documents = true;
    bytes = std::max(bytes, attention_workspace(Device::cuda, sizes));
    const Tensor starts = d.room({B, T}, DType::i32);
    upload(starts, documents->starts.data(), d.stream());
    f.documents.starts = b.documents.starts = starts;
  }
  b.workspace = d.room({ceil_div(bytes, 4)}, DType::f32);
  return {.forward = seconds_of_one([&] { forward(f, d.stream()); }, d.stream()),
          .backward = seconds_of_one([&] { backward(b, d.stream()); }, d.stream())};
}

void taken(const std::string& refusal) {
  if (!refusal.empty()) throw EnvironmentError("cuDNN does not take the ceiling's attention: " + refusal);
}

// Returns the rate of forward and backward together.
double report(const char* what, std::int64_t D, double pairs, const Times& times) {
  const double flops = 4.0 * static_cast<double>(kHeads * D) * pairs;
  fmt::print("{:<34} D {:>3}   forward {:6.3f} ms {:5.0f} TFLOP/s   backward {:6.3f} ms {:5.0f} TFLOP/s", what, D,
             times.forward * 1e3, flops / times.forward / 1e12, times.backward * 1e3,
             2.5 * flops / times.backward / 1e12);
  return 3.5 * flops / times.both();
}

void compare_documents(std::int64_t D) {
  const Forward by_cudnn = [](const AttentionForwardArgs& a, Stream& s) { taken(cuda::cudnn_attention_forward(a, s)); };
  const Backward back_by_cudnn = [](const AttentionBackwardArgs& a, Stream& s) {
    taken(cuda::cudnn_attention_backward(a, s));
  };
  const double square = 8 * 0.5 * 1024.0 * 1024.0;
  const double ceiling =
      report("cuDNN, causal, T 1024, B 8", D, square, attention(8, 1024, D, nullptr, false, by_cudnn, back_by_cudnn));
  fmt::print("\n");
  report("ours, causal, T 1024, B 8", D, square,
         attention(8, 1024, D, nullptr, true, attention_forward, attention_backward));
  fmt::print("\n");
  for (const std::int64_t B : {1, 4}) {
    const Documents documents = log_normal(B, 8192, 1024, 0.5);
    const double rate = report(fmt::format("documents, T 8192, B {}", B).c_str(), D, documents.pairs,
                               attention(B, 8192, D, &documents, true, attention_forward, attention_backward));
    fmt::print("   over cuDNN's: {:.3f} (bound 0.80)\n", rate / ceiling);
    std::fflush(stdout);
  }
}

int run_bench() {
  if (cuda::gpu_count() == 0) {
    fmt::print(stderr, "bench_attention: it measures a GPU, and there is none here\n");
    return 2;
  }
  for (const std::int64_t D : {64, 128}) compare_documents(D);
  for (const std::int64_t D : {64, 128}) compare_rings(32768, D);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main() {
  try {
    return lockstep::run_bench();
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_attention: {}\n", error.what());
    return 3;
  }
}
