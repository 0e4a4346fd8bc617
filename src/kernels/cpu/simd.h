// The vector all cpu kernels are written with: 64 bytes of the compute type, whatever the machine's own width.
//
// Lanes are logical: 16 floats or 8 doubles everywhere, so a sum over lanes has one order on AVX-512, AVX2 and anything
// else, and a row's tail goes through the same lanes as its body (load_some fills with zeros, store_some writes what
// there is). Storage types are converted on load and store. Plain operators come from the compiler's vector extension;
// fma is explicit since contraction is off.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensor/dtype.h"

namespace lockstep::cpu {

// The type a storage type is computed in.
template <class S>
struct ComputeOf {
  using Type = float;
};
template <>
struct ComputeOf<double> {
  using Type = double;
};
template <class S>
using Compute = typename ComputeOf<S>::Type;

template <class T>
struct VecOf;
template <>
struct VecOf<float> {
  typedef float Type __attribute__((vector_size(64)));
  typedef std::int32_t Int __attribute__((vector_size(64)));
};
template <>
struct VecOf<double> {
  typedef double Type __attribute__((vector_size(64)));
  typedef std::int64_t Int __attribute__((vector_size(64)));
};
template <class T>
using Vec = typename VecOf<T>::Type;
template <class T>
inline constexpr int kLanes = 64 / sizeof(T);

template <class T>
[[gnu::always_inline]] inline Vec<T> broadcast(T value) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>)
    return (Vec<T>)_mm512_set1_ps(value);
  else
    return (Vec<T>)_mm512_set1_pd(value);
#else
  Vec<T> v;
  for (int i = 0; i < kLanes<T>; ++i) v[i] = value;
  return v;
#endif
}

[[gnu::always_inline]] inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(__AVX512F__)
  return (Vec<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  for (int i = 0; i < 16; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}
[[gnu::always_inline]] inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__AVX512F__)
  return (Vec<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#else
  for (int i = 0; i < 8; ++i) c[i] = __builtin_fma(a[i], b[i], c[i]);
  return c;
#endif
}

// Loads of kLanes<Compute<S>> elements of storage type S, and of the first `count` of them with zeros after them.
template <class S>
[[gnu::always_inline]] inline Vec<Compute<S>> load(const S* p) {
  Vec<Compute<S>> v;
  if constexpr (std::is_same_v<S, Compute<S>>) {
    std::memcpy(&v, p, sizeof v);
  } else if constexpr (std::is_same_v<S, bf16>) {
#if defined(__AVX512F__)
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    v = (Vec<float>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
#else
    for (int i = 0; i < 16; ++i) v[i] = static_cast<float>(p[i]);
#endif
  } else if constexpr (sizeof(S) == 1) {  // FP8, by its table
    for (int i = 0; i < 16; ++i) v[i] = static_cast<float>(p[i]);
  } else {
#if defined(__AVX512F__)
    v = (Vec<float>)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#else
    for (int i = 0; i < 16; ++i) v[i] = static_cast<float>(p[i]);
#endif
  }
  return v;
}

template <class S>
[[gnu::always_inline]] inline void store(S* p, Vec<Compute<S>> v) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    std::memcpy(p, &v, sizeof v);
  } else if constexpr (std::is_same_v<S, bf16>) {
#if defined(__AVX512F__)
    const __m512i u = (__m512i)v;
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(r));
#else
    for (int i = 0; i < 16; ++i) p[i] = bf16(v[i]);
#endif
  } else {
#if defined(__AVX512F__)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    for (int i = 0; i < 16; ++i) p[i] = f16(v[i]);
#endif
  }
}

template <class S>
[[gnu::always_inline]] inline Vec<Compute<S>> load_some(const S* p, std::int64_t count) {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
  const unsigned mask = (1u << count) - 1;
  if constexpr (std::is_same_v<S, float>) return (Vec<float>)_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p);
  if constexpr (std::is_same_v<S, double>) return (Vec<double>)_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), p);
  if constexpr (sizeof(S) == 2) {
    S padded[16];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(padded), _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), p));
    return load(padded);
  }
#endif
  S padded[kLanes<Compute<S>>];
  std::memset(static_cast<void*>(padded), 0, sizeof padded);
  std::memcpy(padded, p, count * sizeof(S));
  return load(padded);
}

template <class S>
[[gnu::always_inline]] inline void store_some(S* p, Vec<Compute<S>> v, std::int64_t count) {
#if defined(__AVX512F__)
  const unsigned mask = (1u << count) - 1;
  if constexpr (std::is_same_v<S, float>) return _mm512_mask_storeu_ps(p, static_cast<__mmask16>(mask), (__m512)v);
  if constexpr (std::is_same_v<S, double>) return _mm512_mask_storeu_pd(p, static_cast<__mmask8>(mask), (__m512d)v);
#endif
  S padded[kLanes<Compute<S>>];
  store(padded, v);
  std::memcpy(p, padded, count * sizeof(S));
}

// Calls body(i, load, store) for i = 0, kLanes, 2 kLanes, … below n; `load(p)` and `store(p, v)` take the pointer at i
// and know the tail.
template <class T, class Body>
[[gnu::always_inline]] inline void for_vectors(std::int64_t n, Body&& body) {
  constexpr int W = kLanes<T>;
  std::int64_t i = 0;
  for (; i + W <= n; i += W)
    body(
        i, [](const auto* p) { return load(p); }, [](auto* p, Vec<T> v) { store(p, v); });
  if (const std::int64_t rest = n - i; rest > 0)
    body(
        i, [rest](const auto* p) { return load_some(p, rest); }, [rest](auto* p, Vec<T> v) { store_some(p, v, rest); });
}

// The lanes' sum in one fixed tree: halves are added until one is left.
template <class T>
[[gnu::always_inline]] inline T sum(Vec<T> v) {
  T lane[kLanes<T>];
  std::memcpy(lane, &v, sizeof lane);
  for (int half = kLanes<T> / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

// The largest lane; a NaN anywhere comes out as NaN.
template <class T>
[[gnu::always_inline]] inline T max(Vec<T> v) {
  T result = v[0];
  for (int i = 1; i < kLanes<T>; ++i) result = (v[i] > result || v[i] != v[i]) ? v[i] : result;
  return result;
}
template <class T>
[[gnu::always_inline]] inline Vec<T> max_of(Vec<T> a, Vec<T> b) {
  const auto take_a = (a > b) | (a != a);
  return take_a ? a : b;
}

// exp, to about one unit in the last place for float (Cody-Waite reduction and a polynomial); the library's for double,
// which proves numerics rather than being fast. exp(-inf) is 0, overflow is infinity, NaN stays NaN.
[[gnu::always_inline]] inline Vec<float> exp(Vec<float> x) {
  // What rounds to zero is not computed: an underflow traps into microcode, and a mask of -inf would be full of them.
  const auto zero = x < broadcast(-104.0f);
  const Vec<float> high = broadcast(89.0f);
  Vec<float> y = zero ? Vec<float>{} : x;
  y = y > high ? high : y;
  // n = round(y / ln 2), by adding and taking away 1.5·2^23.
  const Vec<float> magic = broadcast(12582912.0f);
  const Vec<float> n = fma(y, broadcast(1.44269504088896341f), magic) - magic;
  Vec<float> r = fma(n, broadcast(-0.693359375f), y);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec<float> p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(p, r * r, r) + broadcast(1.0f);
#if defined(__AVX512F__)
  Vec<float> result = (Vec<float>)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  // 2^n in two factors, so that results below the smallest normal number and up to the largest one come out right: the
  // first product is exact, the second rounds once, as the instruction does.
  using Int = VecOf<float>::Int;
  const Int k = __builtin_convertvector(n, Int);
  const Int half = k >> 1;
  const Vec<float> a = (Vec<float>)((half + 127) << 23), b = (Vec<float>)((k - half + 127) << 23);
  Vec<float> result = p * a * b;
#endif
  result = zero ? Vec<float>{} : result;
  return x == x ? result : x;
}
[[gnu::always_inline]] inline Vec<double> exp(Vec<double> x) {
  for (int i = 0; i < 8; ++i) x[i] = std::exp(x[i]);
  return x;
}

// tanh by way of exp(-2|x|): no cancellation worth the name for the arguments GELU gives it.
[[gnu::always_inline]] inline Vec<float> tanh(Vec<float> x) {
  const Vec<float> magnitude = x < 0 ? -x : x;
  const Vec<float> e = exp(magnitude * broadcast(-2.0f));
  const Vec<float> big = (broadcast(1.0f) - e) / (broadcast(1.0f) + e);
  // Near zero 1 - e loses bits: there the odd series to x^7 is closer.
  const Vec<float> s = x * x;
  Vec<float> series = fma(s, broadcast(-0.05396825397f), broadcast(0.13333333333f));
  series = fma(s, series, broadcast(-0.33333333333f));
  series = fma(s * series, magnitude, magnitude);
  const Vec<float> t = magnitude < broadcast(0.2f) ? series : big;
  return x < 0 ? -t : t;
}
[[gnu::always_inline]] inline Vec<double> tanh(Vec<double> x) {
  for (int i = 0; i < 8; ++i) x[i] = std::tanh(x[i]);
  return x;
}

template <class T>
[[gnu::always_inline]] inline Vec<T> sqrt(Vec<T> x) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) return (Vec<T>)_mm512_sqrt_ps((__m512)x);
  if constexpr (std::is_same_v<T, double>) return (Vec<T>)_mm512_sqrt_pd((__m512d)x);
#endif
  for (int i = 0; i < kLanes<T>; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

}  // namespace lockstep::cpu
