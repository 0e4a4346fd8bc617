// State that is rounded by chance (kernels/stochastic_rounding.h), a vector of elements at a time.
//
// Words are drawn 64 at a time, in the lanes of vectors (philox_lanes.h), where a tensor has as many consecutive
// elements: those of the next 64 between the four vectors of these. Where tensors or rows end, 16 at a time, or four
// where one ends within a vector. The words are the definition's in each case.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cpu/philox_lanes.h"
#include "kernels/cpu/simd.h"
#include "kernels/stochastic_rounding.h"

namespace lockstep::cpu {

// Sixteen floats, none of them a NaN, rounded by chance with the upper or the lower halves of these words.
template <bool Upper>
[[gnu::always_inline]] inline void store_by_chance(bf16* p, Vec<float> value, const std::uint32_t* words) {
#if defined(__AVX512F__)
  const __m512i w = _mm512_loadu_si512(words);
  const __m512i bits = Upper ? _mm512_srli_epi32(w, 16) : _mm512_and_si512(w, _mm512_set1_epi32(0xffff));
  const __m512i sum = _mm512_srli_epi32(_mm512_add_epi32((__m512i)value, bits), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(sum));
#elif defined(__AVX2__)
  __m256i u[2];
  std::memcpy(u, &value, sizeof u);
  for (int half = 0; half < 2; ++half) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + 8 * half));
    const __m256i bits = Upper ? _mm256_srli_epi32(w, 16) : _mm256_and_si256(w, _mm256_set1_epi32(0xffff));
    u[half] = _mm256_srli_epi32(_mm256_add_epi32(u[half], bits), 16);
  }
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(u[0], u[1]), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
#else
  for (int k = 0; k < kLanes<float>; ++k) p[k] = round_by_chance(value[k], words[k] >> (Upper ? 16 : 0) & 0xffffu);
#endif
}

// A NaN in any of the lanes.
[[gnu::always_inline]] inline bool any_nan(Vec<float> v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
  __m256 half[2];
  std::memcpy(half, &v, sizeof half);
  return _mm256_movemask_ps(_mm256_cmp_ps(half[0], half[1], _CMP_UNORD_Q)) != 0;
#else
  bool any = false;
  for (int k = 0; k < kLanes<float>; ++k) any |= v[k] != v[k];
  return any;
#endif
}

// Stores a vector's new state. T is what is computed in, P the master's type and M the moments': what is narrower than
// T is rounded by chance, the rest goes by way of the `store` that for_vectors gives. `Plain` vectors are whole and
// have no NaN.
template <class T, class P, class M, bool Plain>
class Keeper {
 public:
  // Of the `count` elements that there are.
  [[gnu::always_inline]] Keeper(const std::uint32_t* moments, const std::uint32_t* master, std::int64_t count)
      : moments_(moments), master_(master), count_(count) {}

  // Moments take one half of their words: m, or the momentum, the lower.
  template <class Store>
  [[gnu::always_inline]] void first_moment(M* p, Vec<T> value, Store&& store) const {
    keep<false>(p, value, moments_, store);
  }
  template <class Store>
  [[gnu::always_inline]] void second_moment(M* p, Vec<T> value, Store&& store) const {
    keep<true>(p, value, moments_, store);
  }
  template <class Store>
  [[gnu::always_inline]] void master(P* p, Vec<T> value, Store&& store) const {
    keep<false>(p, value, master_, store);
  }

 private:
  template <bool Upper, class S, class Store>
  [[gnu::always_inline]] void keep(S* p, Vec<T> value, const std::uint32_t* words, Store&& store) const {
    if constexpr (std::is_same_v<T, S>) {
      store(p, value);
    } else if constexpr (Plain) {
      store_by_chance<Upper>(p, value, words);
    } else {
      for (std::int64_t k = 0; k < std::min<std::int64_t>(count_, kLanes<T>); ++k)
        p[k] = round_by_chance(value[k], words[k] >> (Upper ? 16 : 0) & 0xffffu);
    }
  }

  const std::uint32_t *moments_, *master_;
  std::int64_t count_;
};

template <class T, class P, class M>
class Chances {
 public:
  Chances(std::span<const RoundingRun> runs, std::int64_t first, double step)
      : runs_(runs), first_(first), step_(static_cast<std::uint64_t>(step)) {}

  // for_vectors over elements [begin, end): keep(i, compute(i, load), store, keeper). What is computed is only kept
  // later, so that a core has other work while divisions are made; it has a member `p`, the new master, which is a NaN
  // where anything else of it is. Ranges ascend from call to call.
  template <class Compute, class Keep>
  void each_vector(std::int64_t begin, std::int64_t end, const Compute& compute, const Keep& keep) {
    if constexpr (kStreams == 0) {
      for_vectors<T>(end - begin, [&](std::int64_t offset, auto load, auto store) {
        const std::int64_t i = begin + offset;
        keep(i, compute(i, load), store, Keeper<T, P, M, true>(nullptr, nullptr, end - i));
      });
    } else {
      for (std::int64_t i = begin; i < end;) {
        const std::int64_t together = whole_blocks(i, end, compute, keep);
        i += together > 0 ? together : one_vector(i, end, compute, keep);
      }
    }
  }

 private:
  static constexpr bool kOfMoments = !std::is_same_v<T, M>, kOfMaster = !std::is_same_v<T, P>;
  static constexpr int kStreams = (kOfMoments ? 1 : 0) + (kOfMaster ? 1 : 0);
  using Words = std::uint32_t[kStreams == 0 ? 1 : kStreams][kDrawn];
  static const std::uint32_t* moments_of(const Words& words) { return words[0]; }
  static const std::uint32_t* master_of(const Words& words) { return words[kStreams - 1]; }

  // The blocks of 64 consecutive elements of a tensor from i on; returns how many elements these were.
  template <class Compute, class Keep>
  std::int64_t whole_blocks(std::int64_t i, std::int64_t end, const Compute& compute, const Keep& keep) {
#if defined(LOCKSTEP_PHILOX_LANES)
    const RoundedElement e = rounded_element(runs_.data(), static_cast<int>(runs_.size()), at_run_, first_ + i);
    const std::int64_t blocks = std::min(e.left, end - i) / kDrawn;
    const auto group = static_cast<std::uint64_t>(e.element) / 4;
    if (blocks == 0 || e.element % 4 != 0 || !fits(group, blocks)) return 0;
    PhiloxLanes<kStreams> lanes;
    lanes.start(e.key, group, counters());
    Words words[2];
    lanes.begin();
    lanes.template rounds<0, 10>();
    lanes.finish(words[0]);
    for (std::int64_t b = 0; b < blocks; ++b, i += kDrawn) {
      const Words& now = words[b % 2];
      constexpr int W = kLanes<T>;
      const auto computed = [&](int at) __attribute__((always_inline)) {
        return compute(i + at, [](const auto* p) { return load(p); });
      };
      const auto kept = [&](int at, const auto& state) __attribute__((always_inline)) {
        if (any_nan(state.p)) [[unlikely]]
          keep_any(i + at, W, now, at, compute, keep);
        else
          keep_plain(i + at, state, now, at, keep);
      };
      lanes.begin();  // the next block's, one more than is needed
      const auto first = computed(0);
      lanes.template rounds<0, 3>();
      kept(0, first);
      const auto second = computed(W);
      lanes.template rounds<3, 5>();
      kept(W, second);
      const auto third = computed(2 * W);
      lanes.template rounds<5, 8>();
      kept(2 * W, third);
      const auto fourth = computed(3 * W);
      lanes.template rounds<8, 10>();
      kept(3 * W, fourth);
      lanes.finish(words[(b + 1) % 2]);
    }
    return blocks * kDrawn;
#else
    return 0;
#endif
  }

  // Keeps a whole vector without NaNs, with the words from `at` on.
  template <class State, class Keep>
  [[gnu::always_inline]] static void keep_plain(std::int64_t i, const State& state, const Words& words, std::int64_t at,
                                                const Keep& keep) {
    keep(
        i, state, [](auto* p, Vec<T> v) { store(p, v); },
        Keeper<T, P, M, true>(moments_of(words) + at, master_of(words) + at, kLanes<T>));
  }
  // A vector of `count` elements, which may have NaNs.
  template <class Compute, class Keep>
  [[gnu::noinline, gnu::cold]] static void keep_any(std::int64_t i, std::int64_t count, const Words& words,
                                                    std::int64_t at, const Compute& compute, const Keep& keep) {
    const Keeper<T, P, M, false> keeper(moments_of(words) + at, master_of(words) + at, count);
    for_vectors<T>(count, [&](std::int64_t, auto load, auto store) { keep(i, compute(i, load), store, keeper); });
  }

  // Returns how many elements it has.
  template <class Compute, class Keep>
  [[gnu::noinline]] std::int64_t one_vector(std::int64_t i, std::int64_t end, const Compute& compute,
                                            const Keep& keep) {
    const std::int64_t place = first_ + i, count = std::min<std::int64_t>(kLanes<T>, end - i);
    if (place < begin_ || end_ < place + kLanes<T>) fill(place);
    if (count == kLanes<T>) {
      const auto state = compute(i, [](const auto* p) { return load(p); });
      if (!any_nan(state.p)) {
        keep_plain(i, state, words_, place - begin_, keep);
        return count;
      }
    }
    keep_any(i, count, words_, place - begin_, compute, keep);
    return count;
  }

  // The words of the vector at this place, and of what follows it.
  [[gnu::noinline]] void fill(std::int64_t place) {
    const auto count = static_cast<int>(runs_.size());
    const RoundedElement e = rounded_element(runs_.data(), count, at_run_, place);
    begin_ = place;
    if (e.left >= kLanes<T>) {
      const std::int64_t skipped = e.element % 4;
      draw(e.key, static_cast<std::uint64_t>(e.element) / 4);
      begin_ -= skipped;
      end_ = place + std::min(kDrawn - skipped, e.left);
      return;
    }
    end_ = place + kLanes<T>;
    for (int k = 0; k < kLanes<T>; k += 4) {
      const RoundingWords four = rounding_words<kOfMoments, kOfMaster>(runs_.data(), count, at_run_, place + k, step_);
      if (kOfMaster) std::copy(four.master.begin(), four.master.end(), words_[kStreams - 1] + k);
      if (kOfMoments) std::copy(four.moments.begin(), four.moments.end(), words_[0] + k);
    }
  }

  void draw(std::uint64_t key, std::uint64_t group) {
#if defined(LOCKSTEP_PHILOX_LANES)
    if (fits(group, 1)) {
      PhiloxLanes<kStreams> lanes;
      lanes.start(key, group, counters());
      lanes.begin();
      lanes.template rounds<0, 10>();
      return lanes.finish(words_);
    }
#endif
    for (std::size_t s = 0; s < kStreams; ++s)
      for (std::uint64_t g = 0; g < kDrawn / 4; ++g) {
        const Philox4 four = philox(key, group + g, counters()[s]);
        std::copy(four.begin(), four.end(), words_[s] + 4 * g);
      }
  }

  std::array<std::uint64_t, kStreams> counters() const {
    const std::uint64_t moments = rounding_counter(step_, RoundingStream::moments),
                        master = rounding_counter(step_, RoundingStream::master);
    if constexpr (kStreams == 2)
      return {moments, master};
    else
      return {kOfMoments ? moments : master};
  }
  // The lower halves of these blocks' groups do not overflow.
  static bool fits(std::uint64_t group, std::int64_t blocks) {
    return (group & 0xffffffff) + static_cast<std::uint64_t>(blocks) * (kDrawn / 4) <= 0x100000000;
  }

  std::span<const RoundingRun> runs_;
  std::int64_t first_;
  std::uint64_t step_;
  int at_run_ = 0;
  std::int64_t begin_ = 0, end_ = 0;  // the places whose words are here
  Words words_;
};

}  // namespace lockstep::cpu
