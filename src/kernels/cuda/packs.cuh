// Sixteen bytes at a time: a pack is that many neighbouring elements, what one thread reads or writes at once.
//
// A pack is kept as it is stored, four registers whatever the type, and widened where it is used. Sixteen-byte access
// needs the pointer and every stride of an operand to be multiples of sixteen bytes, and the width of whole packs
// (`in_packs`); kernels have a plain way, element by element over the same packs, for all other operands.
#pragma once
#include "kernels/cuda/rows.cuh"

namespace lockstep::cuda {

template <class S>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(S));

template <class S>
struct Pack {
  unsigned word[4];
};

template <class S>
__device__ inline Pack<S> load_pack(const S* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  return {{raw.x, raw.y, raw.z, raw.w}};
}
template <class S>
__device__ inline void store_pack(S* to, const Pack<S>& p) {
  *reinterpret_cast<uint4*>(to) = make_uint4(p.word[0], p.word[1], p.word[2], p.word[3]);
}

template <class S>
__device__ inline void widen(Compute<S> (&to)[kPack<S>], const Pack<S>& p) {
  if constexpr (std::is_same_v<S, double>) {
    for (int i = 0; i < 2; ++i)
      to[i] = __hiloint2double(static_cast<int>(p.word[2 * i + 1]), static_cast<int>(p.word[2 * i]));
  } else if constexpr (std::is_same_v<S, float>) {
    for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(p.word[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<S, bf16>) {
        to[2 * i] = __uint_as_float(p.word[i] << 16);
        to[2 * i + 1] = __uint_as_float(p.word[i] & 0xffff0000u);
      } else {
        const __half2& both = reinterpret_cast<const __half2&>(p.word[i]);
        to[2 * i] = __low2float(both);
        to[2 * i + 1] = __high2float(both);
      }
    }
  }
}

// Two values in one instruction; the bits are those of narrow<S>.
template <class S>
__device__ inline unsigned narrow_pair(float low, float high) {
  if constexpr (std::is_same_v<S, bf16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
  } else {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
  }
}

template <class S>
__device__ inline Pack<S> narrow_pack(const Compute<S> (&from)[kPack<S>]) {
  Pack<S> p;
  if constexpr (std::is_same_v<S, double>) {
    for (int i = 0; i < 2; ++i) {
      p.word[2 * i] = static_cast<unsigned>(__double2loint(from[i]));
      p.word[2 * i + 1] = static_cast<unsigned>(__double2hiint(from[i]));
    }
  } else if constexpr (std::is_same_v<S, float>) {
    for (int i = 0; i < 4; ++i) p.word[i] = __float_as_uint(from[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) p.word[i] = narrow_pair<S>(from[2 * i], from[2 * i + 1]);
  }
  return p;
}

// N values of any float type, widened: whole, in pieces of sixteen or of eight bytes; or the first `count` of them one
// by one, with zeros after them.
template <bool Whole, int N, class S>
__device__ inline void read(Compute<S> (&to)[N], const S* from, int count) {
  if constexpr (!Whole) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = i < count ? widen(from[i]) : Compute<S>(0);
  } else {
    static_assert(N % kPack<S> == 0);
#pragma unroll
    for (int i = 0; i < N; i += kPack<S>) {
      Compute<S> each[kPack<S>];
      widen(each, load_pack(from + i));
      for (int j = 0; j < kPack<S>; ++j) to[i + j] = each[j];
    }
  }
}

// A pack, or the first `count` elements of it with zeros after them.
template <bool Whole, class S>
__device__ inline Pack<S> load_some(const S* from, int count) {
  if constexpr (Whole) {
    return load_pack(from);
  } else {
    Compute<S> v[kPack<S>];
    read<false>(v, from, count);
    return narrow_pack<S>(v);
  }
}

template <bool Whole, int N, class S>
__device__ inline void write(S* to, const Compute<S> (&from)[N], int count) {
  if constexpr (!Whole) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < count) to[i] = narrow<S>(from[i]);
  } else if constexpr (N % kPack<S> == 0) {
#pragma unroll
    for (int i = 0; i < N; i += kPack<S>) {
      Compute<S> each[kPack<S>];
      for (int j = 0; j < kPack<S>; ++j) each[j] = from[i + j];
      store_pack(to + i, narrow_pack<S>(each));
    }
  } else {
    static_assert(N == 4 && sizeof(S) == 2);  // 16-bit results of fp32 packs
    *reinterpret_cast<uint2*>(to) = make_uint2(narrow_pair<S>(from[0], from[1]), narrow_pair<S>(from[2], from[3]));
  }
}

// Whether every row of the operands begins at a multiple of `Bytes`. One that is none does.
template <int Bytes, class S>
bool aligned_rows(const Rows<S>& r) {
  constexpr std::int64_t size = sizeof(S);
  return reinterpret_cast<std::uintptr_t>(r.base) % Bytes == 0 && r.outer_stride * size % Bytes == 0 &&
         r.inner_stride * size % Bytes == 0;
}
template <class S>
bool aligned(const S* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

// Whether rows of this width can be read and written in packs, all operands of them.
template <class... Operands>
bool in_packs(std::int64_t columns, const Rows<Operands>&... operands) {
  return ((columns % kPack<std::remove_const_t<Operands>> == 0 && aligned_rows<16>(operands)) && ...);
}

// Where elements are independent: a thread for each pack, pieces of a row along x, rows along y; kernels stride over
// the rest of the rows.
struct PackGrid {
  dim3 blocks;
  int threads;
};
inline PackGrid pack_grid(std::int64_t rows, std::int64_t columns, int pack) {
  const std::int64_t packs = std::max<std::int64_t>(1, ceil_div(columns, pack));
  const std::int64_t pieces = ceil_div(packs, kThreads);
  return {{static_cast<unsigned>(pieces), static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, 65535)), 1},
          static_cast<int>(round_up(ceil_div(packs, pieces), 32))};
}

// In a kernel launched on a pack_grid: body(row, first column, how many columns) for every pack that is this thread's.
template <class S, class Body>
__device__ inline void each_pack(std::int64_t rows, std::int64_t columns, Body&& body) {
  const std::int64_t c = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPack<S>;
  if (c >= columns) return;
  const int count = static_cast<int>(columns - c < kPack<S> ? columns - c : kPack<S>);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) body(row, c, count);
}

}  // namespace lockstep::cuda
