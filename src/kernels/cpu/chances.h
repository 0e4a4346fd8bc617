// The random words of state that is rounded by chance (kernels/stochastic_rounding.h), a vector of elements at a time.
//
// Consecutive elements of a tensor are drawn 64 at a time, in the lanes of vectors; where tensors or rows end within a
// vector, four at a time. The words are the definition's either way.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cpu/simd.h"
#include "kernels/stochastic_rounding.h"

namespace lockstep::cpu {

constexpr int kDrawn = 64;  // words at a time: of 16 groups
constexpr int kXorOfThree = 0x96;

// The words of elements 4·group … 4·group + 63.
inline void draw_groups(std::uint32_t* words, std::uint64_t key, std::uint64_t group, std::uint64_t step,
                        RoundingStream stream) {
#if defined(__AVX512F__)
  // A group has the lower half of a 64-bit lane, where products are made; what is in the upper half is never read.
  // Of eight groups, those in even lanes are the first four, so that words are interleaved into place.
  if ((group & 0xffffffffu) + 16 <= 0x100000000u) {
    const std::uint64_t high = rounding_counter(step, stream);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i first = _mm512_add_epi64(_mm512_set1_epi64(static_cast<std::int64_t>(group & 0xffffffffu)), order);
    __m512i c0[2] = {first, _mm512_add_epi64(first, _mm512_set1_epi64(8))};
    __m512i c1[2], c2[2], c3[2];
    for (int half = 0; half < 2; ++half) {
      c1[half] = _mm512_set1_epi64(static_cast<std::int64_t>(group >> 32));
      c2[half] = _mm512_set1_epi64(static_cast<std::int64_t>(high & 0xffffffffu));
      c3[half] = _mm512_set1_epi64(static_cast<std::int64_t>(high >> 32));
    }
    __m512i k0 = _mm512_set1_epi32(static_cast<int>(key)), k1 = _mm512_set1_epi32(static_cast<int>(key >> 32));
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    for (int round = 0; round < 10; ++round) {  // base/philox.h
      for (int half = 0; half < 2; ++half) {
        const __m512i p0 = _mm512_mul_epu32(c0[half], m0), p1 = _mm512_mul_epu32(c2[half], m1);
        c0[half] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c1[half], k0, kXorOfThree);
        c1[half] = p1;
        c2[half] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c3[half], k1, kXorOfThree);
        c3[half] = p0;
      }
      k0 = _mm512_add_epi32(k0, _mm512_set1_epi32(static_cast<int>(0x9E3779B9u)));
      k1 = _mm512_add_epi32(k1, _mm512_set1_epi32(static_cast<int>(0xBB67AE85u)));
    }
    for (int half = 0; half < 2; ++half) {
      const __m512i a = _mm512_mask_blend_epi32(0xaaaa, c0[half], _mm512_slli_epi64(c1[half], 32));
      const __m512i b = _mm512_mask_blend_epi32(0xaaaa, c2[half], _mm512_slli_epi64(c3[half], 32));
      _mm512_storeu_si512(words + 32 * half, _mm512_unpacklo_epi64(a, b));
      _mm512_storeu_si512(words + 32 * half + 16, _mm512_unpackhi_epi64(a, b));
    }
    return;
  }
#endif
  for (std::uint64_t g = 0; g < kDrawn / 4; ++g) {
    const Philox4 four = rounding_bits(key, group + g, step, stream);
    std::copy(four.begin(), four.end(), words + 4 * g);
  }
}

// Sixteen floats, rounded by chance with the lower halves of these words.
[[gnu::always_inline]] inline void store_by_chance(bf16* p, Vec<float> value, const std::uint32_t* words, int shift) {
#if defined(__AVX512F__)
  const __m512i u = (__m512i)value;
  const __m512i bits = _mm512_and_si512(_mm512_srl_epi32(_mm512_loadu_si512(words), _mm_cvtsi32_si128(shift)),
                                        _mm512_set1_epi32(0xffff));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, bits), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);
  r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
#else
  for (int k = 0; k < kLanes<float>; ++k) p[k] = round_by_chance(value[k], words[k] >> shift & 0xffffu);
#endif
}

// T is what is computed in, P the master's type and M the moments': what is narrower than T is rounded by chance.
template <class T, class P, class M>
class Chances {
 public:
  Chances(std::span<const RoundingRun> runs, std::int64_t first, double step)
      : runs_(runs), first_(first), step_(static_cast<std::uint64_t>(step)) {}

  // For the vector of elements from i on; i ascends. Before its numbers are loaded: a call would spill them.
  [[gnu::always_inline]] void draw(std::int64_t i) {
    if constexpr (kOfMoments || kOfMaster) {
      const std::int64_t place = first_ + i;
      if (place < begin_ || place + kLanes < T >> end_) fill(place);
      at_word_ = static_cast<int>(place - begin_);
    }
  }
  // Stores the `count` elements there are of a moment, or of the master, by way of `store` where it is not rounded.
  // Moments take one `half` of their words.
  template <class Store>
  void keep_moment(M* p, Vec<T> value, std::int64_t count, int half, Store&& store) const {
    keep(p, value, count, moments_ + at_word_, 16 * half, store);
  }
  template <class Store>
  void keep_master(P* p, Vec<T> value, std::int64_t count, Store&& store) const {
    keep(p, value, count, master_ + at_word_, 0, store);
  }

 private:
  static constexpr bool kOfMoments = !std::is_same_v<T, M>, kOfMaster = !std::is_same_v<T, P>;

  // The words of the vector at this place, and of what follows it.
  [[gnu::noinline]] void fill(std::int64_t place) {
    const auto count = static_cast<int>(runs_.size());
    const RoundedElement e = rounded_element(runs_.data(), count, at_run_, place);
    begin_ = place;
    if (e.left >= kLanes<T>) {
      const std::int64_t skipped = e.element % 4;
      const auto group = static_cast<std::uint64_t>(e.element) / 4;
      if constexpr (kOfMoments) draw_groups(moments_, e.key, group, step_, RoundingStream::moments);
      if constexpr (kOfMaster) draw_groups(master_, e.key, group, step_, RoundingStream::master);
      begin_ -= skipped;
      end_ = place + std::min(kDrawn - skipped, e.left);
      return;
    }
    end_ = place + kLanes<T>;
    for (int k = 0; k < kLanes<T>; k += 4) {
      const RoundingWords four = rounding_words<kOfMoments, kOfMaster>(runs_.data(), count, at_run_, place + k, step_);
      std::copy(four.moments.begin(), four.moments.end(), moments_ + k);
      std::copy(four.master.begin(), four.master.end(), master_ + k);
    }
  }

  template <class S, class Store>
  static void keep(S* p, Vec<T> value, std::int64_t count, const std::uint32_t* words, int shift, Store&& store) {
    if constexpr (std::is_same_v<T, S>) {
      store(p, value);
    } else if (count >= kLanes<T>) {
      store_by_chance(p, value, words, shift);
    } else {
      for (std::int64_t k = 0; k < count; ++k) p[k] = round_by_chance(value[k], words[k] >> shift & 0xffffu);
    }
  }

  std::span<const RoundingRun> runs_;
  std::int64_t first_;
  std::uint64_t step_;
  int at_run_ = 0, at_word_ = 0;
  std::int64_t begin_ = 0, end_ = 0;  // the places whose words are here
  std::uint32_t moments_[kDrawn], master_[kDrawn];
};

}  // namespace lockstep::cpu
