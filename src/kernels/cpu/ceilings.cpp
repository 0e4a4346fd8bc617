#include "kernels/cpu/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/cpu/simd.h"
#include "tensor/cpu/workers.h"

namespace lockstep::cpu {

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// 20 independent chains hide the latency of two FMA units. Sums of floats may not be reordered, so nothing is optimised
// away. `start` must differ from call to call as far as the compiler knows, or it would call this pure function once.
template <class T>
[[gnu::noinline]] T chains(std::int64_t rounds, T start) {
  constexpr int kChains = 20;
  Vec<T> sums[kChains];
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) sums[i] = broadcast(T(i) + start);
  const Vec<T> a = broadcast(T(0.999)), b = broadcast(T(1e-3));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) sums[i] = fma(sums[i], a, b);
  }
  Vec<T> total{};
#pragma GCC unroll 20
  for (int i = 0; i < kChains; ++i) total += sums[i];
  return sum<T>(total);
}

}  // namespace

double fma_peak(DType dtype, int threads) {
  constexpr std::int64_t kRounds = 100'000, kPieces = 24;  // small pieces: a thread that wakes late costs little
  Workers workers(threads);
  double best = 0;
  for (int trial = 0; trial < 5; ++trial) {
    const double start = seconds();
    workers.each(kPieces * threads, [&](std::int64_t, int) {
      volatile double seed = 0.5;  // read anew each time
      const double start = seed;
      seed = dtype == DType::f64 ? chains<double>(kRounds, start) : chains<float>(kRounds, static_cast<float>(start));
    });
    const double lanes = dtype == DType::f64 ? 8 : 16;
    best = std::max(best, threads * kPieces * kRounds * 20.0 * 2 * lanes / (seconds() - start));
  }
  return best;
}

double copy_bandwidth(int threads, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::vector<char> from(bytes, 1), to(bytes, 2);
  Workers workers(threads);
  double best = 0;
  for (int trial = 0; trial < 5; ++trial) {
    const double start = seconds();
    workers.each(static_cast<std::int64_t>(bytes / kPiece),
                 [&](std::int64_t i, int) { std::memcpy(to.data() + i * kPiece, from.data() + i * kPiece, kPiece); });
    best = std::max(best, 2.0 * static_cast<double>(bytes / kPiece * kPiece) / (seconds() - start));
  }
  return best;
}

namespace {
template <class Body>
void each_piece_of(std::int64_t elements, Workers& workers, Body&& body) {
  constexpr std::int64_t kPiece = 16384;  // as the kernels cut flat operands
  workers.each((elements + kPiece - 1) / kPiece,
               [&](std::int64_t item, int) { body(item * kPiece, std::min(kPiece, elements - item * kPiece)); });
}
}  // namespace

void change_in_place(std::span<float* const> arrays, std::int64_t elements, Workers& workers) {
  each_piece_of(elements, workers, [&](std::int64_t begin, std::int64_t count) {
    for (float* const x : arrays)
      for_vectors<float>(count, [&](std::int64_t i, auto load, auto store) {
        store(x + begin + i, load(x + begin + i) * broadcast(0.999F));
      });
  });
}

void triad(float* a, const float* b, const float* x, std::int64_t elements, Workers& workers) {
  each_piece_of(elements, workers, [&](std::int64_t begin, std::int64_t count) {
    for_vectors<float>(count, [&](std::int64_t i, auto load, auto store) {
      store(a + begin + i, fma(load(x + begin + i), broadcast(0.999F), load(b + begin + i)));
    });
  });
}

}  // namespace lockstep::cpu
