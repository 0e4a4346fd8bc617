// What attention's forward and backward share on the GPU: the problem, and the two products that both are made of.
//
// A block is a square of 16 x 16 threads and works on square tiles: scores of kRows queries against kRows keys, and
// kRows rows of an output whose sums live in registers. A thread holds N x N neighbouring elements, N of them being one
// vector of shared memory. Shared memory does not grow with the head width: dot() takes it in slices of kDepth and
// add_product() in slices of kRows, both read from the tensors again, which the caches serve. Every sum is made by one
// thread in ascending order, but for a row's sums over its 16 threads (softmax's denominator, delta), a fixed
// butterfly.
#pragma once
#include <algorithm>
#include <limits>

#include "kernels/attention.h"
#include "kernels/cuda/dropout_mask.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

// One name for both compute types.
__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
// A NaN on either side comes through.
template <class T>
__device__ inline T max_of(T a, T b) {
  return a > b || a != a ? a : b;
}

// `count` token rows of one head.
template <class S>
struct HeadRows {
  S* data;
  std::int64_t stride;
  int count;
};

// A (batch, token, head, width) tensor.
template <class S>
struct HeadView {
  S* data;
  std::int64_t batch, token, head;
  // Rows [first, first + most) as far as they are before `end`.
  __device__ HeadRows<S> rows(std::int64_t b, std::int64_t h, std::int64_t first, int most, std::int64_t end) const {
    return {data + b * batch + h * head + first * token, token,
            static_cast<int>(min(static_cast<long long>(most), static_cast<long long>(end - first)))};
  }
};
template <class S>
HeadView<S> view_heads(const Tensor& x) {
  return {x.data<S>(), x.stride(0), x.stride(1), x.stride(2)};
}
template <class S>
HeadView<const S> view_heads(const ConstTensor& x) {
  return {x.data<S>(), x.stride(0), x.stride(1), x.stride(2)};
}

// The sizes and options of one call, in the compute type.
template <class T>
struct AttentionProblem {
  std::int64_t queries, keys, heads, key_heads, group;
  int width;
  T scale;
  bool causal;
  std::int64_t shift;  // query t sees keys up to t + shift
  bool drops;
  T kept;  // what a probability that dropout keeps is multiplied by
  DropoutMask mask;
  AttentionDropout dropout;
  const std::int32_t* starts;  // of the queries' documents; none: each sample is one
  std::int64_t starts_stride, first_key;

  template <class Args>
  explicit AttentionProblem(const Args& a)
      : queries(a.q.dim(1)),
        keys(a.k.dim(1)),
        heads(a.q.dim(2)),
        key_heads(a.k.dim(2)),
        group(heads / key_heads),
        width(static_cast<int>(a.q.dim(3))),
        scale(static_cast<T>(a.scale)),
        causal(a.causal),
        shift(keys - queries),
        drops(a.dropout.probability > 0),
        kept(static_cast<T>(1 / (1 - a.dropout.probability))),
        mask(a.dropout.key, a.dropout.probability),
        dropout(a.dropout),
        starts(a.documents.starts ? a.documents.starts.template data<std::int32_t>() : nullptr),
        starts_stride(a.documents.starts ? a.documents.starts.stride(0) : 0),
        first_key(a.documents.first_key) {}

  // Before which key the queries below `end` see all they see.
  __device__ std::int64_t keys_seen(std::int64_t end) const {
    return causal && end + shift < keys ? end + shift : keys;
  }
  // The first key of a query's document; of a query beyond the last, the last one's.
  __device__ std::int64_t first_seen(std::int64_t b, std::int64_t t) const {
    if (!starts) return 0;
    const std::int64_t first = starts[b * starts_stride + (t < queries ? t : queries - 1)] - first_key;
    return first < 0 ? 0 : first < keys ? first : keys;
  }
  // Where the tile of keys begins that the queries from q0 on see first.
  __device__ std::int64_t keys_from(std::int64_t b, std::int64_t q0, int rows) const {
    return first_seen(b, q0) / rows * rows;
  }
  // The pair is masked or beyond the tensors.
  __device__ bool hidden(std::int64_t t, std::int64_t s) const {
    return t >= queries || s >= keys || (causal && s > t + shift);
  }
  __device__ DropoutMask::Row mask_row(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return mask.row((dropout.first_sample + b) | ((dropout.first_head + h) << 40), dropout.first_query + t);
  }
  // What dropout multiplies the probability of key s by.
  __device__ T factor(DropoutMask::Row& row, std::int64_t s) const { return row(dropout.first_key + s) ? kept : T(0); }
};

template <class T>
struct AttentionTile {
  static constexpr int kSide = 16;
  static constexpr int N = 16 / static_cast<int>(sizeof(T));
  static constexpr int kRows = kSide * N;
  static constexpr int kDepth = 32;
  static constexpr int kStride = kRows + N;  // of tiles written across: keeps vectors whole and banks apart
  static_assert(kSide * kSide == kThreads);

  using Square = T[N][N];
  struct alignas(16) Pack {
    T v[N];
  };
  struct Shared {
    alignas(16) T operands[2 * kDepth * kStride];  // two slices for dot(), or one for add_product()
    alignas(16) T weights[kRows * kStride];
    T lse[kRows];
    T delta[kRows];
  };
  static_assert(2 * kDepth * kStride >= kRows * kRows && sizeof(Shared) <= 48 * 1024);

  // This thread's first column and first row in every tile.
  static __device__ int column() { return static_cast<int>(threadIdx.x) % kSide * N; }
  static __device__ int row() { return static_cast<int>(threadIdx.x) / kSide * N; }

  // Over the 16 threads that share their rows, the same for all of them. Every thread of the warp must call it.
  static __device__ T sum_of_row(T value) {
    for (int offset = kSide / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
  }
  static __device__ T max_of_row(T value) {
    for (int offset = kSide / 2; offset > 0; offset /= 2)
      value = max_of(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
  }

  // out[i][j] = x_(row + i) · y_(column + j)
  template <class S>
  static __device__ void dot(Square& out, Shared& shared, HeadRows<const S> x, HeadRows<const S> y, int width) {
    T *x_t = shared.operands, *y_t = shared.operands + kDepth * kStride;
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) out[i][j] = 0;
    for (int d0 = 0; d0 < width; d0 += kDepth) {
      __syncthreads();
      load_across(x_t, x, d0, width);
      load_across(y_t, y, d0, width);
      __syncthreads();
      const int depth = min(kDepth, width - d0);
#pragma unroll 8
      for (int d = 0; d < depth; ++d)
        add_outer(out, pack_at(x_t + d * kStride + row()), pack_at(y_t + d * kStride + column()));
    }
  }

  // The thread's square becomes weights for add_product(): those of output row `row + i` for the terms `column + j`.
  static __device__ void set_weights(Shared& shared, const Square& square) {
    __syncthreads();  // the weights before may still be read
#pragma unroll
    for (int j = 0; j < N; ++j) {
      Pack p;
#pragma unroll
      for (int i = 0; i < N; ++i) p.v[i] = square[i][j];
      *reinterpret_cast<Pack*>(shared.weights + (column() + j) * kStride + row()) = p;
    }
  }

  // out[c][i][j] += Σ_k weights[k][row + i] · x_k[c · kRows + column + j], terms ascending.
  template <int kSlices, class S>
  static __device__ void add_product(Square (&out)[kSlices], Shared& shared, HeadRows<const S> x, int width) {
#pragma unroll
    for (int c = 0; c < kSlices; ++c) {
      if (c * kRows < width) {
        __syncthreads();
        load_along(shared.operands, x, c * kRows, width);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < x.count; ++k)
          add_outer(out[c], pack_at(shared.weights + k * kStride + row()),
                    pack_at(shared.operands + k * kRows + column()));
      }
    }
  }

  // to_(row + i) = out[·][i]
  template <int kSlices, class S>
  static __device__ void write(HeadRows<S> to, const Square (&out)[kSlices], int width) {
#pragma unroll
    for (int c = 0; c < kSlices; ++c)
#pragma unroll
      for (int i = 0; i < N; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const int r = row() + i, d = c * kRows + column() + j;
          if (r < to.count && d < width) to.data[r * to.stride + d] = narrow<S>(out[c][i][j]);
        }
  }

 private:
  static __device__ Pack pack_at(const T* p) { return *reinterpret_cast<const Pack*>(p); }

  static __device__ void add_outer(Square& out, const Pack& a, const Pack& b) {
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) out[i][j] = multiply_add(a.v[i], b.v[j], out[i][j]);
  }

  template <class S>
  static __device__ T element(HeadRows<const S> x, int r, int d, int width) {
    return r < x.count && d < width ? widen(x.data[r * x.stride + d]) : T(0);
  }

  // to[d][r], zeros beyond the rows and the width. A warp takes 8 columns of 4 rows: whole sectors of the tensor, and
  // all banks apart.
  template <class S>
  static __device__ void load_across(T* to, HeadRows<const S> x, int d0, int width) {
#pragma unroll
    for (int n = 0; n < kRows * kDepth / kThreads; ++n) {
      const int e = static_cast<int>(threadIdx.x) + n * kThreads;
      const int r = e / 8 % kRows, d = e / (8 * kRows) * 8 + e % 8;
      to[d * kStride + r] = element(x, r, d0 + d, width);
    }
  }
  // to[r][d], kRows of each
  template <class S>
  static __device__ void load_along(T* to, HeadRows<const S> x, int d0, int width) {
#pragma unroll 4
    for (int n = 0; n < kRows * kRows / kThreads; ++n) {
      const int e = static_cast<int>(threadIdx.x) + n * kThreads;
      to[e] = element(x, e / kRows, d0 + e % kRows, width);
    }
  }
};

// Calls body(slices) with the number of slices of kRows columns, a constant, that hold this head width.
template <class T, class Body>
void with_slices(std::int64_t width, Body&& body) {
  constexpr int kRows = AttentionTile<T>::kRows;
  static_assert(kMaxHeadWidth == 256);
  if (width <= 64)
    body(std::integral_constant<int, 64 / kRows>{});
  else if (width <= 128)
    body(std::integral_constant<int, 128 / kRows>{});
  else
    body(std::integral_constant<int, 256 / kRows>{});
}

}  // namespace lockstep::cuda
