// Matrix products, blocked for the caches, over the packed slivers of gemm.h.
//
// Why not a BLAS: the serial OpenBLAS that Debian ships gives wrong results when two threads call it at once, and the
// threaded builds bring locks, threads and tens of megabytes that are neither counted nor ours to schedule
// (bench/results/2026-11-15-gemm-libraries.md). This one takes its room from the stream's scratch, converts 16-bit
// operands while it packs them, and gives each element the same bits whatever the tiles and threads are.
//
// For each block of C and of K: the workers pack B into shared slivers, then each takes groups of rows, packs those of
// A for itself where they need it, and multiplies them by all of B. A group's rows are read once, into L1; B's slivers
// go by from L2, in panels that fit there.
#include "kernels/matmul.h"

#include <algorithm>

#include "base/integers.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/few_rows_product.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/types.h"
#include "tensor/cpu/stream.h"
#include "tensor/fp8.h"

namespace lockstep::cpu {

namespace {

constexpr std::int64_t kMostSlivers = 16;  // of A in one piece of work

// How much of C is worked on at a time. A worker's scratch holds its own slivers of A; the first worker's, the slivers
// of B and the sums where C cannot hold them as well.
template <class T, class R, bool kScaled>
struct Block {
  static constexpr bool kSumsApart = kScaled || !std::is_same_v<T, R>;
  static constexpr std::int64_t kRows = kSumsApart ? 1008 : std::int64_t{1} << 40;
  static constexpr std::int64_t kColumns = kSumsApart ? 512 : sizeof(T) == 4 ? 1536 : 960;
  static constexpr std::int64_t kPanel = 512 * 4 / sizeof(T);  // columns whose slivers stay in L2
  static constexpr std::int64_t kA = kMostSlivers * Gemm<T>::kSliverA;
  static constexpr std::int64_t kB = kColumns / Gemm<T>::kColumns * Gemm<T>::kSliverB;
  static constexpr std::int64_t kSums = kSumsApart ? kRows * kColumns : 0;
  static_assert(kColumns % Gemm<T>::kColumns == 0 && kPanel % Gemm<T>::kColumns == 0);
  static_assert((kA + kB + kSums) * static_cast<std::int64_t>(sizeof(T)) <= kScratchBytes);
};

// Near-equal blocks of at most `largest`, each a multiple of `unit` but the last.
std::int64_t block_size(std::int64_t extent, std::int64_t largest, std::int64_t unit) {
  return extent == 0 ? unit : round_up(ceil_div(extent, ceil_div(extent, largest)), unit);
}

// Of elements of types S and U. FP8's are multiplied as they are, and their sums by both scales at the end.
template <class S, class U, class R>
class Product {
  using T = Compute<S>;
  using G = Gemm<T>;
  static constexpr bool kScaled = sizeof(S) == 1;
  using B = Block<T, R, kScaled>;
  using Bias = std::conditional_t<kScaled, bf16, S>;
  static constexpr bool kInPlace = std::is_same_v<S, T>;  // A's elements can be multiplied in place

 public:
  Product(const MatmulArgs& a, Stream& stream)
      : a_(a),
        stream_(stream),
        workers_(stream.workers()),
        pa_(a.a.data<S>()),
        pb_(a.b.data<U>()),
        pc_(a.c.data<R>()),
        M_(a.c.dim(0)),
        N_(a.c.dim(1)),
        K_(a.a.dim(a.transpose_a ? 0 : 1)),
        packed_b_(static_cast<T*>(stream.scratch(0)) + B::kA),
        sums_(packed_b_ + B::kB) {
    if constexpr (kScaled) scale_ = *a.scale_a.data<float>() * *a.scale_b.data<float>();
  }

  void run() {
    const std::int64_t rows = block_size(M_, B::kRows, G::kRows), columns = block_size(N_, B::kColumns, G::kColumns);
    for (j0_ = 0; j0_ < N_; j0_ += columns)
      for (i0_ = 0; i0_ < M_; i0_ += rows) {
        m_ = std::min(rows, M_ - i0_);
        n_ = std::min(columns, N_ - j0_);
        k0_ = 0;
        do {  // once even for K = 0, whose product is zero
          depth_ = std::min(G::kDepth, K_ - k0_);
          pack_b();
          multiply();
          k0_ += G::kDepth;
        } while (k0_ < K_);
      }
  }

 private:
  void pack_b() {
    workers_.each(ceil_div(n_, G::kColumns), [&](std::int64_t item, int) {
      const std::int64_t column = item * G::kColumns, j = j0_ + column, stride = a_.b.stride(0);
      G::pack_b(packed_b_ + item * G::kSliverB, pb_ + (a_.transpose_b ? j * stride + k0_ : k0_ * stride + j), stride,
                a_.transpose_b, std::min<std::int64_t>(G::kColumns, n_ - column), depth_);
    });
  }

  void multiply() {
    // Panel by panel, since all of B's slivers would not stay in L2. Pieces small enough for an even share: the cut may
    // follow the number of threads, since no sum depends on it.
    const std::int64_t fair = ceil_div(ceil_div(m_, G::kRows), 16 * workers_.threads());
    const std::int64_t height = std::clamp<std::int64_t>(fair, 1, kMostSlivers) * G::kRows;
    const std::int64_t down = ceil_div(m_, height), panels = ceil_div(n_, B::kPanel);
    workers_.each(down * panels, [&](std::int64_t item, int worker) {
      const std::int64_t begin = item % down * height, end = std::min(m_, begin + height);
      const std::int64_t left = item / down * B::kPanel, right = std::min(n_, left + B::kPanel);
      T* room = static_cast<T*>(stream_.scratch(worker));
      if (!kInPlace || a_.transpose_a)
        pack_a(room, begin, end);
      else if (const std::int64_t whole = begin + (end - begin) / G::kRows * G::kRows; whole < end)
        pack_a(room, whole, end);  // rows beyond the last must not be read
      if (B::kSumsApart && k0_ == 0) start_sums(begin, end, left, right);
      for (std::int64_t i = begin; i < end; i += G::kRows)
        for (std::int64_t j = left; j < right; j += G::kColumns) sliver_product(room, begin, i, j);
      if (k0_ + depth_ >= K_) finish(begin, end, left, right);
    });
  }

  const S* a_at(std::int64_t i) const {
    const std::int64_t stride = a_.a.stride(0);
    return pa_ + (a_.transpose_a ? k0_ * stride + i0_ + i : (i0_ + i) * stride + k0_);
  }

  void pack_a(T* room, std::int64_t begin, std::int64_t end) {
    G::pack_a(room, a_at(begin), a_.a.stride(0), a_.transpose_a, end - begin, depth_);
  }

  // Where the sums of (i, j) of this block are kept, and how far the next row is.
  T* sums_at(std::int64_t i, std::int64_t j) const {
    if constexpr (B::kSumsApart)
      return sums_ + i * B::kColumns + j;
    else
      return pc_ + (i0_ + i) * a_.c.stride(0) + j0_ + j;
  }
  std::int64_t sums_stride() const { return B::kSumsApart ? B::kColumns : a_.c.stride(0); }

  void sliver_product(const T* room, std::int64_t begin, std::int64_t i, std::int64_t j) {
    const std::int64_t rows = std::min<std::int64_t>(G::kRows, m_ - i),
                       columns = std::min<std::int64_t>(G::kColumns, n_ - j);
    const T* a = room + (i - begin) / G::kRows * G::kSliverA;
    std::int64_t a_stride = G::kStride;
    if constexpr (kInPlace) {
      if (!a_.transpose_a) {
        a = rows == G::kRows ? a_at(i) : room;
        a_stride = rows == G::kRows ? a_.a.stride(0) : G::kStride;
      }
    }
    const T* b = packed_b_ + j / G::kColumns * G::kSliverB;
    const bool add = B::kSumsApart || a_.accumulate || k0_ > 0;
    const auto block = a_.transpose_a ? &G::template block<true> : &G::template block<false>;
    if (rows == G::kRows && columns == G::kColumns)
      return block(sums_at(i, j), sums_stride(), a, a_stride, b, depth_, add);
    alignas(64) T edge[G::kRows * G::kColumns];
    block(edge, G::kColumns, a, a_stride, b, depth_, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      T* out = sums_at(i + r, j);
      for (std::int64_t c = 0; c < columns; ++c)
        out[c] = add ? out[c] + edge[r * G::kColumns + c] : edge[r * G::kColumns + c];
    }
  }

  void start_sums(std::int64_t begin, std::int64_t end, std::int64_t left, std::int64_t right) {
    for (std::int64_t i = begin; i < end; ++i) {
      const R* c = pc_ + (i0_ + i) * a_.c.stride(0) + j0_ + left;
      T* sums = sums_at(i, left);
      for_vectors<T>(right - left, [&](std::int64_t j, auto load, auto store) {
        store(sums + j, a_.accumulate && !kScaled ? load(c + j) : Vec<T>{});
      });
    }
  }

  // After the last of K: scales and the bias join, and sums kept apart are rounded into C.
  void finish(std::int64_t begin, std::int64_t end, std::int64_t left, std::int64_t right) {
    if (!a_.bias && !B::kSumsApart) return;
    const Bias* bias = a_.bias ? a_.bias.template data<Bias>() + j0_ + left : nullptr;
    for (std::int64_t i = begin; i < end; ++i) {
      const T* from = sums_at(i, left);
      R* to = pc_ + (i0_ + i) * a_.c.stride(0) + j0_ + left;
      for_vectors<T>(right - left, [&](std::int64_t j, auto load, auto store) {
        Vec<T> sum = load(from + j);
        if constexpr (kScaled) {
          sum *= broadcast(scale_);
          if (a_.accumulate) sum += load(to + j);
        }
        store(to + j, bias ? sum + load(bias + j) : sum);
      });
    }
  }

  const MatmulArgs& a_;
  Stream& stream_;
  Workers& workers_;
  const S* pa_;
  const U* pb_;
  R* pc_;
  std::int64_t M_, N_, K_;
  T *packed_b_, *sums_;
  T scale_ = 1;
  std::int64_t i0_ = 0, j0_ = 0, k0_ = 0, m_ = 0, n_ = 0, depth_ = 0;  // the block at hand
};

template <class S, class U>
void fp8_product(const MatmulArgs& a, Stream& stream) {
  if (a.c.dtype() == DType::bf16)
    Product<S, U, bf16>(a, stream).run();
  else
    Product<S, U, float>(a, stream).run();
}

}  // namespace

void matmul(const MatmulArgs& a, lockstep::Stream& stream) {
  if (a.addend) {
    // What is in c first is added to in the accumulator type, so it may as well be the addend.
    with_float(a.c.dtype(), [&](auto r) {
      using R = typename decltype(r)::Type;
      const auto to = rows<R>(a.c);
      const auto from = rows<R>(a.addend);
      each_row(Stream::of(stream), a.c.dim(0), a.c.dim(1),
               [&](std::int64_t row, int) { std::copy_n(from[row], a.c.dim(1), to[row]); });
    });
    MatmulArgs rest = a;
    rest.addend = {};
    rest.accumulate = true;
    return cpu::matmul(rest, stream);
  }
  if (a.a.dtype() == DType::f8e5m2) return fp8_product<f8e5m2, f8e4m3>(a, Stream::of(stream));
  if (a.b.dtype() == DType::f8e5m2) return fp8_product<f8e4m3, f8e5m2>(a, Stream::of(stream));
  if (a.a.dtype() == DType::f8e4m3) return fp8_product<f8e4m3, f8e4m3>(a, Stream::of(stream));
  with_float_and_result(a.a.dtype(), a.c.dtype(), [&](auto s, auto r) {
    using S = typename decltype(s)::Type;
    using R = typename decltype(r)::Type;
    if (is_of_few_rows(a)) return FewRows<S, R>(a, Stream::of(stream)).run();
    Product<S, S, R>(a, Stream::of(stream)).run();
  });
}

}  // namespace lockstep::cpu
