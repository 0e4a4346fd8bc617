// Heads (B, T, H, D) with free strides as kernels see them: where each begins, and whether packs of it may be used.
#pragma once
#include "kernels/cuda/flat.cuh"
#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

struct HeadsSizes {
  std::int64_t batch, length, heads, width;
};

struct HeadPlace {
  std::int64_t b, t, h;
};

// Head n of (B, T, H), in that order.
__device__ inline HeadPlace head_of(std::int64_t n, const HeadsSizes& s) {
  const RowPlace head = place_of(n, s.heads), token = place_of(head.outer, s.length);
  return {token.outer, token.inner, head.inner};
}

template <class S>
struct Heads {
  S* base;
  std::int64_t stride_b, stride_t, stride_h;
  __device__ S* operator[](const HeadPlace& at) const {
    return base + at.b * stride_b + at.t * stride_t + at.h * stride_h;
  }
};

template <class S>
Heads<S> heads(const Tensor& t) {
  return {t.data<S>(), t.stride(0), t.stride(1), t.stride(2)};
}
template <class S>
Heads<const S> heads(const ConstTensor& t) {
  return {t.data<S>(), t.stride(0), t.stride(1), t.stride(2)};
}

// Whether every head of the operands is made of whole packs of N elements, and begins at one.
template <int N, class... S>
bool packed_heads(const HeadsSizes& s, const Heads<S>&... operands) {
  return s.width % N == 0 &&
         ((packed<N>(operands.base) && (s.batch == 1 || operands.stride_b % N == 0) &&
           (s.length == 1 || operands.stride_t % N == 0) && (s.heads == 1 || operands.stride_h % N == 0)) &&
          ...);
}

// A pack of N from element i on of a head of `width`, or as much of it as there is.
template <int N, class S>
__device__ inline auto load_part(const S* head, std::int64_t i, std::int64_t width, bool packed) {
  using Element = std::remove_const_t<S>;
  return packed ? load_pack<Element, N>(head + i) : load_some<Element, N>(head + i, width - i);
}
template <int N, class S>
__device__ inline void store_part(S* head, std::int64_t i, std::int64_t width, bool packed, const Pack<S, N>& pack) {
  if (packed)
    store_pack(head + i, pack);
  else
    store_some(head + i, pack, width - i);
}

}  // namespace lockstep::cuda
