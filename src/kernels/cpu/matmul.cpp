// Matrix products by the serial BLAS under our own threads.
//
// c is cut into tiles by shape alone; each tile is one serial GEMM over the whole of K, so the bits do not depend on
// how many threads share the tiles. 16-bit operands are converted, block of K by block of K, into the worker's scratch
// and summed in float.
#include "kernels/matmul.h"

#include <cblas.h>
#include <algorithm>

#include "base/integers.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"
#include "tensor/cpu/stream.h"

namespace lockstep::cpu {

namespace {

struct Tile {
  std::int64_t row, rows, column, columns;
};

// The grid c is cut into.
class Grid {
 public:
  Grid(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t largest) : m_(m), n_(n) {
    // Few large tiles: packing costs a pass over both operands for each. Enough of them that several threads find work.
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const std::int64_t wanted = flops < 4e6 ? 1 : flops < 64e6 ? 2 : 4;
    while (down_ * across_ < wanted && (tile_rows() > 64 || tile_columns() > 64))
      (tile_rows() >= tile_columns() ? down_ : across_) *= 2;
    while (tile_rows() > largest) ++down_;
    while (tile_columns() > largest) ++across_;
  }
  std::int64_t tiles() const {
    return m_ == 0 || n_ == 0 ? 0 : ceil_div(m_, tile_rows()) * ceil_div(n_, tile_columns());
  }
  Tile operator[](std::int64_t item) const {
    const std::int64_t across = ceil_div(n_, tile_columns());
    const std::int64_t row = item / across * tile_rows(), column = item % across * tile_columns();
    return {row, std::min(tile_rows(), m_ - row), column, std::min(tile_columns(), n_ - column)};
  }

 private:
  std::int64_t tile_rows() const { return round_up(ceil_div(m_, down_), 16); }
  std::int64_t tile_columns() const { return round_up(ceil_div(n_, across_), 16); }
  std::int64_t m_, n_, down_ = 1, across_ = 1;
};

void gemm(const float* a, int lda, bool ta, const float* b, int ldb, bool tb, float* c, int ldc, int m, int n, int k,
          bool add) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1.0f, a, lda, b,
              ldb, add ? 1.0f : 0.0f, c, ldc);
}
void gemm(const double* a, int lda, bool ta, const double* b, int ldb, bool tb, double* c, int ldc, int m, int n, int k,
          bool add) {
  cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1.0, a, lda, b,
              ldb, add ? 1.0 : 0.0, c, ldc);
}

// BLAS takes leading dimensions of at least the row length, also where there is only one row.
int leading(const ConstTensor& t) { return static_cast<int>(std::max<std::int64_t>({t.stride(0), t.dim(1), 1})); }

template <class S, class T>
void add_bias(const S* bias, T* c, std::int64_t ldc, const Tile& tile) {
  for (std::int64_t row = 0; row < tile.rows; ++row)
    for_vectors<T>(tile.columns, [&](std::int64_t i, auto load, auto store) {
      T* out = c + row * ldc + i;
      store(out, load(out) + load(bias + tile.column + i));
    });
}

// fp32 and fp64: BLAS reads and writes the operands where they are.
template <class T>
void direct(const MatmulArgs& a, Stream& stream, std::int64_t m, std::int64_t n, std::int64_t k) {
  const T *pa = a.a.data<T>(), *pb = a.b.data<T>();
  T* pc = a.c.data<T>();
  const std::int64_t lda = leading(a.a), ldb = leading(a.b), ldc = leading(a.c);
  const Grid grid(m, n, k, std::int64_t{1} << 20);
  stream.workers().each(grid.tiles(), [&](std::int64_t item, int) {
    const Tile t = grid[item];
    T* c = pc + t.row * ldc + t.column;
    gemm(pa + (a.transpose_a ? t.row : t.row * lda), static_cast<int>(lda), a.transpose_a,
         pb + (a.transpose_b ? t.column * ldb : t.column), static_cast<int>(ldb), a.transpose_b, c,
         static_cast<int>(ldc), static_cast<int>(t.rows), static_cast<int>(t.columns), static_cast<int>(k),
         a.accumulate);
    if (a.bias) add_bias(a.bias.data<T>(), c, ldc, t);
  });
}

// Copies rows x columns elements into float, rows packed one behind the other.
template <class S>
void widen(float* to, const S* from, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row)
    for_vectors<float>(columns, [&](std::int64_t i, auto load, auto store) {
      store(to + row * columns + i, load(from + row * stride + i));
    });
}

// bf16 and fp16 operands; c of the same type, or float.
template <class S, class R>
void widened(const MatmulArgs& a, Stream& stream, std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kTile = 512, kDepth = 512;
  static_assert(3 * kTile * kDepth * sizeof(float) <= kScratchBytes);
  const S *pa = a.a.data<S>(), *pb = a.b.data<S>();
  R* pc = a.c.data<R>();
  const std::int64_t lda = leading(a.a), ldb = leading(a.b), ldc = leading(a.c);
  const Grid grid(m, n, k, kTile);
  stream.workers().each(grid.tiles(), [&](std::int64_t item, int worker) {
    const Tile t = grid[item];
    float* block_a = static_cast<float*>(stream.scratch(worker));
    float* block_b = block_a + kTile * kDepth;
    float* sums = block_b + kTile * kDepth;
    const int columns = static_cast<int>(t.columns);
    R* c = pc + t.row * ldc + t.column;
    if (a.accumulate)
      for (std::int64_t row = 0; row < t.rows; ++row) widen(sums + row * columns, c + row * ldc, 0, 1, columns);
    else
      std::fill_n(sums, t.rows * columns, 0.0f);
    for (std::int64_t from = 0; from < k; from += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - from);
      if (a.transpose_a)
        widen(block_a, pa + from * lda + t.row, lda, depth, t.rows);
      else
        widen(block_a, pa + t.row * lda + from, lda, t.rows, depth);
      if (a.transpose_b)
        widen(block_b, pb + t.column * ldb + from, ldb, t.columns, depth);
      else
        widen(block_b, pb + from * ldb + t.column, ldb, depth, t.columns);
      gemm(block_a, static_cast<int>(a.transpose_a ? t.rows : depth), a.transpose_a, block_b,
           a.transpose_b ? static_cast<int>(depth) : columns, a.transpose_b, sums, columns, static_cast<int>(t.rows),
           columns, static_cast<int>(depth), true);
    }
    if (a.bias) add_bias(a.bias.data<S>(), sums, columns, t);
    for (std::int64_t row = 0; row < t.rows; ++row)
      for_vectors<float>(columns, [&](std::int64_t i, auto load, auto store) {
        store(c + row * ldc + i, load(sums + row * columns + i));
      });
  });
}

}  // namespace

void matmul(const MatmulArgs& a, lockstep::Stream& stream) {
  Stream& on = Stream::of(stream);
  const std::int64_t m = a.c.dim(0), n = a.c.dim(1), k = a.a.dim(a.transpose_a ? 0 : 1);
  with_float_and_result(a.a.dtype(), a.c.dtype(), [&](auto s, auto r) {
    using S = typename decltype(s)::Type;
    using R = typename decltype(r)::Type;
    if constexpr (std::is_same_v<S, Compute<S>>)
      direct<S>(a, on, m, n, k);
    else
      widened<S, R>(a, on, m, n, k);
  });
}

}  // namespace lockstep::cpu
