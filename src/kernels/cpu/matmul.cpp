// Matrix products, blocked for the caches, over the packed slivers of gemm.h.
//
// Why not a BLAS: the serial OpenBLAS that Debian ships gives wrong results when two threads call it at once, and the
// threaded builds bring locks, threads and tens of megabytes that are neither counted nor ours to schedule
// (bench/results/2026-11-15-gemm-libraries.md). This one takes its room from the stream's scratch, converts 16-bit
// operands while it packs them, and gives each element the same bits whatever the tiles and threads are.
//
// For each block of C and of K: the workers pack both operands into shared slivers, then multiply tiles of slivers.
#include "kernels/matmul.h"

#include <algorithm>

#include "base/integers.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/types.h"
#include "tensor/cpu/stream.h"

namespace lockstep::cpu {

namespace {

// How much of C is worked on at a time. The packed operands, and the sums where C cannot hold them, share one scratch
// of a worker.
template <class T, class R>
struct Block {
  static constexpr bool kSumsApart = !std::is_same_v<T, R>;
  static constexpr std::int64_t kRows = kSumsApart ? 504 : sizeof(T) == 4 ? 2058 : 980;
  static constexpr std::int64_t kColumns = kSumsApart ? 512 : sizeof(T) == 4 ? 1536 : 960;
  static constexpr std::int64_t kA = kRows / Gemm<T>::kRows * Gemm<T>::kSliverA;
  static constexpr std::int64_t kB = kColumns / Gemm<T>::kColumns * Gemm<T>::kSliverB;
  static constexpr std::int64_t kSums = kSumsApart ? kRows * kColumns : 0;
  static_assert(kRows % Gemm<T>::kRows == 0 && kColumns % Gemm<T>::kColumns == 0);
  static_assert((kA + kB + kSums) * static_cast<std::int64_t>(sizeof(T)) <= kScratchBytes);
};

// Near-equal blocks of at most `largest`, each a multiple of `unit` but the last.
std::int64_t block_size(std::int64_t extent, std::int64_t largest, std::int64_t unit) {
  return extent == 0 ? unit : round_up(ceil_div(extent, ceil_div(extent, largest)), unit);
}

template <class S, class R>
class Product {
  using T = Compute<S>;
  using G = Gemm<T>;
  using B = Block<T, R>;

 public:
  Product(const MatmulArgs& a, Stream& stream)
      : a_(a),
        workers_(stream.workers()),
        pa_(a.a.data<S>()),
        pb_(a.b.data<S>()),
        pc_(a.c.data<R>()),
        M_(a.c.dim(0)),
        N_(a.c.dim(1)),
        K_(a.a.dim(a.transpose_a ? 0 : 1)),
        packed_a_(static_cast<T*>(stream.scratch(0))),
        packed_b_(packed_a_ + B::kA),
        sums_(packed_b_ + B::kB) {}

  void run() {
    const std::int64_t rows = block_size(M_, B::kRows, G::kRows), columns = block_size(N_, B::kColumns, G::kColumns);
    for (j0_ = 0; j0_ < N_; j0_ += columns)
      for (i0_ = 0; i0_ < M_; i0_ += rows) {
        m_ = std::min(rows, M_ - i0_);
        n_ = std::min(columns, N_ - j0_);
        k0_ = 0;
        do {  // once even for K = 0, whose product is zero
          depth_ = std::min(G::kDepth, K_ - k0_);
          pack();
          multiply();
          k0_ += G::kDepth;
        } while (k0_ < K_);
      }
  }

 private:
  void pack() {
    constexpr std::int64_t kGroupA = 8, kGroupB = 4;  // slivers of one piece of work
    const std::int64_t groups_a = ceil_div(m_, kGroupA * G::kRows), groups_b = ceil_div(n_, kGroupB * G::kColumns);
    workers_.each(groups_a + groups_b, [&](std::int64_t item, int) {
      if (item < groups_a) {
        const std::int64_t row = item * kGroupA * G::kRows, i = i0_ + row, stride = a_.a.stride(0);
        G::pack_a(packed_a_ + item * kGroupA * G::kSliverA,
                  pa_ + (a_.transpose_a ? k0_ * stride + i : i * stride + k0_), stride, a_.transpose_a,
                  std::min(kGroupA * G::kRows, m_ - row), depth_);
      } else {
        item -= groups_a;
        const std::int64_t column = item * kGroupB * G::kColumns, j = j0_ + column, stride = a_.b.stride(0);
        G::pack_b(packed_b_ + item * kGroupB * G::kSliverB,
                  pb_ + (a_.transpose_b ? j * stride + k0_ : k0_ * stride + j), stride, a_.transpose_b,
                  std::min(kGroupB * G::kColumns, n_ - column), depth_);
      }
    });
  }

  void multiply() {
    // A piece of work: up to 12 x 8 slivers, so that A's sliver stays in L1 and B's eight in L2; fewer rows where that
    // would leave workers without any. The cut may follow the number of threads, since no sum depends on it.
    constexpr std::int64_t kDown = 12, kAcross = 8;
    const std::int64_t across = ceil_div(n_, kAcross * G::kColumns);
    const std::int64_t fair = ceil_div(ceil_div(m_, G::kRows) * across, 4 * workers_.threads());
    const std::int64_t height = std::clamp<std::int64_t>(fair, 1, kDown) * G::kRows;
    workers_.each(ceil_div(m_, height) * across, [&](std::int64_t item, int) {
      const std::int64_t i_begin = item / across * height, j_begin = item % across * kAcross * G::kColumns;
      const std::int64_t i_end = std::min(m_, i_begin + height), j_end = std::min(n_, j_begin + kAcross * G::kColumns);
      if (B::kSumsApart && k0_ == 0) start_sums(i_begin, i_end, j_begin, j_end);
      for (std::int64_t i = i_begin; i < i_end; i += G::kRows)
        for (std::int64_t j = j_begin; j < j_end; j += G::kColumns) sliver_product(i, j);
      if (k0_ + depth_ >= K_) finish(i_begin, i_end, j_begin, j_end);
    });
  }

  // Where the sums of (i, j) of this block are kept, and how far the next row is.
  T* sums_at(std::int64_t i, std::int64_t j) const {
    if constexpr (B::kSumsApart)
      return sums_ + i * B::kColumns + j;
    else
      return pc_ + (i0_ + i) * a_.c.stride(0) + j0_ + j;
  }
  std::int64_t sums_stride() const { return B::kSumsApart ? B::kColumns : a_.c.stride(0); }

  void sliver_product(std::int64_t i, std::int64_t j) {
    const T* a = packed_a_ + i / G::kRows * G::kSliverA;
    const T* b = packed_b_ + j / G::kColumns * G::kSliverB;
    const bool add = B::kSumsApart || a_.accumulate || k0_ > 0;
    const auto block = a_.transpose_a ? &G::template block<true> : &G::template block<false>;
    const std::int64_t rows = std::min<std::int64_t>(G::kRows, m_ - i),
                       columns = std::min<std::int64_t>(G::kColumns, n_ - j);
    if (rows == G::kRows && columns == G::kColumns) return block(sums_at(i, j), sums_stride(), a, b, depth_, add);
    alignas(64) T edge[G::kRows * G::kColumns];
    block(edge, G::kColumns, a, b, depth_, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      T* out = sums_at(i + r, j);
      for (std::int64_t c = 0; c < columns; ++c)
        out[c] = add ? out[c] + edge[r * G::kColumns + c] : edge[r * G::kColumns + c];
    }
  }

  void start_sums(std::int64_t i_begin, std::int64_t i_end, std::int64_t j_begin, std::int64_t j_end) {
    for (std::int64_t i = i_begin; i < i_end; ++i) {
      const R* c = pc_ + (i0_ + i) * a_.c.stride(0) + j0_ + j_begin;
      for (std::int64_t j = 0; j < j_end - j_begin; ++j)
        sums_at(i, j_begin)[j] = a_.accumulate ? static_cast<T>(c[j]) : T(0);
    }
  }

  // After the last of K: the bias joins, and sums kept apart are rounded into C.
  void finish(std::int64_t i_begin, std::int64_t i_end, std::int64_t j_begin, std::int64_t j_end) {
    if (!a_.bias && !B::kSumsApart) return;
    const S* bias = a_.bias ? a_.bias.template data<S>() + j0_ + j_begin : nullptr;
    for (std::int64_t i = i_begin; i < i_end; ++i) {
      const T* from = sums_at(i, j_begin);
      R* to = pc_ + (i0_ + i) * a_.c.stride(0) + j0_ + j_begin;
      for_vectors<T>(j_end - j_begin, [&](std::int64_t j, auto load, auto store) {
        store(to + j, bias ? load(from + j) + load(bias + j) : load(from + j));
      });
    }
  }

  const MatmulArgs& a_;
  Workers& workers_;
  const S *pa_, *pb_;
  R* pc_;
  std::int64_t M_, N_, K_;
  T *packed_a_, *packed_b_, *sums_;
  std::int64_t i0_ = 0, j0_ = 0, k0_ = 0, m_ = 0, n_ = 0, depth_ = 0;  // the block at hand
};

}  // namespace

void matmul(const MatmulArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.a.dtype(), a.c.dtype(), [&](auto s, auto r) {
    Product<typename decltype(s)::Type, typename decltype(r)::Type>(a, Stream::of(stream)).run();
  });
}

}  // namespace lockstep::cpu
