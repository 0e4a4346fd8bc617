// The products of a few rows and columns that lie along k in memory, as a weight (out, in) has them: squares of them
// are turned in registers, so that lanes run over columns and every element keeps its own chain of fmas.
//
// Vectors here are of the machine's own width, since a square must fit its registers. Lanes do not meet, so the width
// shows in no bit.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd.h"
#include "kernels/cpu/tiles.h"

namespace lockstep::cpu {

template <class S>
class TurnedColumns {
 public:
  using T = Compute<S>;
#if defined(__AVX512F__)
  static constexpr int kBytes = 64;
#else
  static constexpr int kBytes = 32;
#endif
  static constexpr int kColumns = kBytes / sizeof(T);  // that are multiplied at a time

  // sums[r][j] = the sum over k < depth, ascending, of rows[k · kM + r] · columns[j · stride + k].
  template <int kM>
  [[gnu::noinline]] static void multiply(T (*sums)[kColumns], const T* rows, const S* columns, std::int64_t stride,
                                         std::int64_t depth) {
    Part kept[kM];
#pragma GCC unroll 8
    for (int r = 0; r < kM; ++r) kept[r] = Part{};
    constexpr int kStep = kBytes / sizeof(S);
    std::int64_t k = 0;
    for (; k + kStep <= depth; k += kStep) {
      Part square[kColumns];
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        const S* from = columns + j * stride + k;
        __builtin_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes);
        std::memcpy(&square[j], from, kBytes);
      }
      turn(square);
#pragma GCC unroll 16
      for (int i = 0; i < kColumns; ++i) {
        if constexpr (std::is_same_v<S, T>) {
          add<kM>(kept, rows + (k + i) * kM, square[i]);
        } else {  // turned as pairs of 16-bit numbers
          add<kM>(kept, rows + (k + 2 * i) * kM, first_of(square[i]));
          add<kM>(kept, rows + (k + 2 * i + 1) * kM, second_of(square[i]));
        }
      }
    }
    for (; k < depth; ++k) {
      Part one;
      for (int j = 0; j < kColumns; ++j) one[j] = static_cast<T>(columns[j * stride + k]);
      add<kM>(kept, rows + k * kM, one);
    }
    std::memcpy(sums, kept, sizeof kept);
  }

 private:
  typedef T Part __attribute__((vector_size(kBytes)));
  typedef std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t> Int __attribute__((vector_size(kBytes)));
  // Short runs of many rows are a pattern that the hardware follows late: they are asked for so far ahead.
  static constexpr std::int64_t kAheadBytes = 512;

  template <int kM>
  [[gnu::always_inline]] static void add(Part* sums, const T* row, Part right) {
#pragma GCC unroll 8
    for (int r = 0; r < kM; ++r) sums[r] = fused(row[r], right, sums[r]);
  }

  [[gnu::always_inline]] static Part fused(T a, Part b, Part c) {
#if defined(__AVX512F__)
    return fma(broadcast(a), b, c);
#elif defined(__FMA__)
    if constexpr (sizeof(T) == 4)
      return (Part)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c);
    else
      return (Part)_mm256_fmadd_pd(_mm256_set1_pd(a), (__m256d)b, (__m256d)c);
#else
    for (int i = 0; i < kColumns; ++i) c[i] = std::fma(a, b[i], c[i]);
    return c;
#endif
  }

  // In log2(kColumns) rounds, each exchanging neighbours `step` apart.
  template <int kApart = 1>
  [[gnu::always_inline]] static void turn(Part* v) {
    if constexpr (kApart < kColumns) {
      Int low{}, high{};
      for (int i = 0; i < kColumns; ++i) {
        low[i] = (i & kApart) ? kColumns + (i ^ kApart) : i;
        high[i] = (i & kApart) ? kColumns + i : (i ^ kApart);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kColumns; ++i)
        if (!(i & kApart)) {
          const Part a = v[i], b = v[i + kApart];
          v[i] = __builtin_shuffle(a, b, low);
          v[i + kApart] = __builtin_shuffle(a, b, high);
        }
      turn<kApart * 2>(v);
    }
  }

  // The first and the second of each lane's two 16-bit numbers.
  [[gnu::always_inline]] static Part first_of(Part pairs) {
    if constexpr (std::is_same_v<S, bf16>) {
      return (Part)((Int)pairs << 16);
    } else {
#if defined(__AVX512F__)
      return (Part)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)pairs));
#elif defined(__F16C__)
      const __m256i low = _mm256_and_si256((__m256i)pairs, _mm256_set1_epi32(0xffff));
      const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x88);
      return (Part)_mm256_cvtph_ps(_mm256_castsi256_si128(packed));
#else
      S each[2 * kColumns];
      std::memcpy(static_cast<void*>(each), &pairs, sizeof pairs);
      Part out;
      for (int i = 0; i < kColumns; ++i) out[i] = static_cast<float>(each[2 * i]);
      return out;
#endif
    }
  }
  [[gnu::always_inline]] static Part second_of(Part pairs) {
    if constexpr (std::is_same_v<S, bf16>)
      return (Part)((Int)pairs & static_cast<std::int32_t>(0xffff0000));
    else
      return first_of((Part)((Int)pairs >> 16));
  }
};

}  // namespace lockstep::cpu
