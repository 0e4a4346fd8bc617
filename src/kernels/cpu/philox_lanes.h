// Philox of consecutive counters in the lanes of vectors: 64 words at a time, of one stream or of two beside each
// other.
//
// A round multiplies, shifts and mixes, each step waiting for the one before: one chain of ten rounds leaves a core
// mostly idle. Two vectors of eight counters per stream run beside each other, and rounds can be asked for a few at a
// time, so that a kernel puts them between its own instructions, whose divisions wait just as long:
//
//   lanes.start(key, group, counters);
//   lanes.begin(); lanes.rounds<0, 10>(); lanes.finish(words);   // groups group … group + 15
//   lanes.begin(); …                                             // the 16 after them
//
// What is the same in every lane is computed once, by start(): the first round changes only two words of the counter
// from lane to lane, the second multiplies one of these. The words are those of base/philox.h to the bit.
#pragma once
#include <array>
#include <cstdint>

#include "base/philox.h"
#include "kernels/cpu/simd.h"

namespace lockstep::cpu {

constexpr int kDrawn = 64;  // words at a time: of 16 groups of four

#if defined(__AVX512F__)
#define LOCKSTEP_PHILOX_LANES 1
// Eight numbers of 64 bits, of which a word has the lower half: products are made there. Upper halves hold anything.
using WordLanes = __m512i;
[[gnu::always_inline]] inline WordLanes lanes_of(std::uint64_t x) {
  return _mm512_set1_epi64(static_cast<std::int64_t>(x));
}
[[gnu::always_inline]] inline WordLanes lanes_product(WordLanes a, WordLanes b) { return _mm512_mul_epu32(a, b); }
[[gnu::always_inline]] inline WordLanes lanes_sum(WordLanes a, WordLanes b) { return _mm512_add_epi64(a, b); }
[[gnu::always_inline]] inline WordLanes lanes_upper(WordLanes a) { return _mm512_srli_epi64(a, 32); }
[[gnu::always_inline]] inline WordLanes lanes_xor(WordLanes a, WordLanes b) { return _mm512_xor_si512(a, b); }
[[gnu::always_inline]] inline WordLanes lanes_xor(WordLanes a, WordLanes b, WordLanes c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
// Eight groups; those in even lanes are the first four, so that unpacking puts words into their order.
[[gnu::always_inline]] inline WordLanes lanes_in_order() { return _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); }
// A product's upper word, mixed, and its lower word after it: what a last round leaves.
[[gnu::always_inline]] inline WordLanes lanes_last(WordLanes product, WordLanes a, WordLanes key) {
  return _mm512_mask_ternarylogic_epi32(_mm512_shuffle_epi32(product, _MM_PERM_CDAB), 0x5555, a, key, 0x96);
}
[[gnu::always_inline]] inline void lanes_store(std::uint32_t* words, WordLanes a, WordLanes b) {
  _mm512_storeu_si512(words, _mm512_unpacklo_epi64(a, b));
  _mm512_storeu_si512(words + 16, _mm512_unpackhi_epi64(a, b));
}
#elif defined(__AVX2__)
#define LOCKSTEP_PHILOX_LANES 1
struct WordLanes {
  __m256i a, b;
};
[[gnu::always_inline]] inline WordLanes lanes_of(std::uint64_t x) {
  const __m256i v = _mm256_set1_epi64x(static_cast<std::int64_t>(x));
  return {v, v};
}
[[gnu::always_inline]] inline WordLanes lanes_product(WordLanes x, WordLanes y) {
  return {_mm256_mul_epu32(x.a, y.a), _mm256_mul_epu32(x.b, y.b)};
}
[[gnu::always_inline]] inline WordLanes lanes_sum(WordLanes x, WordLanes y) {
  return {_mm256_add_epi64(x.a, y.a), _mm256_add_epi64(x.b, y.b)};
}
[[gnu::always_inline]] inline WordLanes lanes_upper(WordLanes x) {
  return {_mm256_srli_epi64(x.a, 32), _mm256_srli_epi64(x.b, 32)};
}
[[gnu::always_inline]] inline WordLanes lanes_xor(WordLanes x, WordLanes y) {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
[[gnu::always_inline]] inline WordLanes lanes_xor(WordLanes x, WordLanes y, WordLanes z) {
  return lanes_xor(lanes_xor(x, y), z);
}
[[gnu::always_inline]] inline WordLanes lanes_in_order() {
  return {_mm256_setr_epi64x(0, 2, 1, 3), _mm256_setr_epi64x(4, 6, 5, 7)};
}
[[gnu::always_inline]] inline WordLanes lanes_last(WordLanes product, WordLanes x, WordLanes key) {
  const WordLanes swapped{_mm256_shuffle_epi32(product.a, 0xb1), _mm256_shuffle_epi32(product.b, 0xb1)};
  const WordLanes mixed = lanes_xor(x, key);
  const __m256i zero = _mm256_setzero_si256();
  return lanes_xor(swapped, {_mm256_blend_epi32(mixed.a, zero, 0xaa), _mm256_blend_epi32(mixed.b, zero, 0xaa)});
}
[[gnu::always_inline]] inline void lanes_store(std::uint32_t* words, WordLanes x, WordLanes y) {
  const auto at = [&](int i) { return reinterpret_cast<__m256i*>(words + i); };
  _mm256_storeu_si256(at(0), _mm256_unpacklo_epi64(x.a, y.a));
  _mm256_storeu_si256(at(8), _mm256_unpackhi_epi64(x.a, y.a));
  _mm256_storeu_si256(at(16), _mm256_unpacklo_epi64(x.b, y.b));
  _mm256_storeu_si256(at(24), _mm256_unpackhi_epi64(x.b, y.b));
}
#endif

#if defined(LOCKSTEP_PHILOX_LANES)
template <int Streams>
class PhiloxLanes {
 public:
  // The upper halves of the streams' counters. The lower half of all groups' numbers that follow must not overflow.
  void start(std::uint64_t key, std::uint64_t group, const std::array<std::uint64_t, Streams>& counters) {
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int r = 0; r < 10; ++r, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) keys0_[r] = k0, keys1_[r] = k1;
    for (int s = 0; s < Streams; ++s) {
      const std::uint64_t counter = counters[static_cast<std::size_t>(s)], p = kM1 * (counter & kLow);
      const std::uint64_t q = kM0 * (p >> 32 ^ group >> 32 ^ keys0_[0]);
      first_[s] = {.c2 = counter >> 32 ^ keys1_[0],
                   .next_c0 = (p & kLow) ^ keys0_[1],
                   .next_c2 = q >> 32 ^ keys1_[1],
                   .third_c2 = (q & kLow) ^ keys1_[2]};
    }
    group_ = group & kLow;
  }

  [[gnu::always_inline]] void begin() {
    const WordLanes groups = lanes_sum(lanes_of(group_), lanes_in_order());
    for (int i = 0; i < kVectors; ++i) c0_[i] = i % 2 == 0 ? groups : lanes_sum(groups, lanes_of(8));
    group_ += kDrawn / 4;
  }

  // Rounds [From, To), of ten.
  template <int From, int To>
  [[gnu::always_inline]] void rounds() {
    if constexpr (From < To) {
      one_round<From>();
      rounds<From + 1, To>();
    }
  }

  [[gnu::always_inline]] void finish(std::uint32_t (*words)[kDrawn]) const {
    for (int i = 0; i < kVectors; ++i) lanes_store(words[i / 2] + i % 2 * 32, c0_[i], c2_[i]);
  }

 private:
  static constexpr int kVectors = 2 * Streams;
  static constexpr std::uint64_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57, kLow = 0xffffffff;
  struct First {
    std::uint64_t c2, next_c0, next_c2, third_c2;
  };

  template <int R>
  [[gnu::always_inline]] void one_round() {
    const WordLanes m0 = lanes_of(kM0), m1 = lanes_of(kM1), k0 = lanes_of(keys0_[R]), k1 = lanes_of(keys1_[R]);
    for (int i = 0; i < kVectors; ++i) {
      const First& first = first_[i / 2];
      if constexpr (R == 0) {  // c1, c2 and c3 are the same in all lanes
        c3_[i] = lanes_product(c0_[i], m0);
        c2_[i] = lanes_xor(lanes_upper(c3_[i]), lanes_of(first.c2));
      } else if constexpr (R == 1) {  // c0 and c1 are
        c1_[i] = lanes_product(c2_[i], m1);
        c0_[i] = lanes_xor(lanes_upper(c1_[i]), lanes_of(first.next_c0));
        c2_[i] = lanes_xor(c3_[i], lanes_of(first.next_c2));
      } else {
        const WordLanes p0 = lanes_product(c0_[i], m0), p1 = lanes_product(c2_[i], m1);
        if constexpr (R < 9) {
          c0_[i] = lanes_xor(lanes_upper(p1), c1_[i], k0);
          c2_[i] =
              R == 2 ? lanes_xor(lanes_upper(p0), lanes_of(first.third_c2)) : lanes_xor(lanes_upper(p0), c3_[i], k1);
        } else {
          c0_[i] = lanes_last(p1, c1_[i], k0);
          c2_[i] = lanes_last(p0, c3_[i], k1);
        }
        c1_[i] = p1;
        c3_[i] = p0;
      }
    }
  }

  std::uint64_t keys0_[10], keys1_[10];
  First first_[Streams];
  std::uint64_t group_ = 0;
  WordLanes c0_[kVectors], c1_[kVectors], c2_[kVectors], c3_[kVectors];
};
#endif

}  // namespace lockstep::cpu
