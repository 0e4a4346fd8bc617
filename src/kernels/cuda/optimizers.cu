// Each element goes through the cpu twin's operations in their order, so results are the same bits but for the bias
// corrections: pow is CUDA's, whose last bits in double may differ from the host's. The moments, which no correction
// enters, are the same bits always, those rounded by chance included.
//
// A thread takes four elements at a time, which is also what one call of the random generator serves.
#include "kernels/optimizers.h"

#include "kernels/cuda/flat.cuh"
#include "kernels/step_control.h"
#include "kernels/stochastic_rounding.h"

namespace lockstep::cuda {

namespace {

constexpr int kEach = 4;

// What both optimizers update, in terms of: master, gradient, the copy that computes (may be none), and the moments.
template <class T, class G, class W, class M>
struct Range {
  T* master;
  W* weight;
  M* moment[2];  // AdamW's m and v; SGD's momentum (may be none)
  const G* gradient;
  const double* control;
  std::int64_t n, decayed;
  std::uint64_t key, first;
  bool packed;
};

// The four elements of a thread. Whole: all of them are there, at aligned places.
template <bool Whole, class S>
__device__ Pack<S, kEach> take(const S* from, std::int64_t count) {
  if constexpr (Whole)
    return load_pack<S, kEach>(from);
  else
    return load_some<S, kEach>(from, count);
}
template <bool Whole, class S>
__device__ void put(S* to, const Pack<S, kEach>& pack, std::int64_t count) {
  if constexpr (Whole)
    store_pack(to, pack);
  else
    store_some(to, pack, count);
}

// Random 32-bit words, for moments that are rounded by chance; unused for others.
template <class T, class M>
__device__ Philox4 words_for(std::uint64_t key, std::uint64_t element, double step) {
  if constexpr (std::is_same_v<T, M>)
    return {};
  else
    return rounding_bits(key, element / kEach, static_cast<std::uint64_t>(step));
}
template <class M, class T>
__device__ M kept(T value, std::uint32_t bits) {
  if constexpr (std::is_same_v<T, M>)
    return value;
  else
    return round_by_chance(value, bits);
}

// Calls update<Whole>(i, count) for this thread's groups of elements; `count` elements are there from i on.
template <class Update>
__device__ void each_group(std::int64_t n, bool packed, Update&& update) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads * kEach;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEach; i < n; i += stride) {
    if (packed && i + kEach <= n)
      update(std::true_type{}, i, n - i);
    else
      update(std::false_type{}, i, n - i);
  }
}

struct AdamWNumbers {
  double beta1, beta2, eps, decay;
};

// The scalars of a step, in the type of the update: computed once per block.
template <class T>
struct AdamWScalars {
  T step_size, root_correction, scale, keep_decayed, keep;
};

template <class T, class G, class W, class M>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const Range<T, G, W, M> a, const AdamWNumbers numbers) {
  if (a.control[kFinite] == 0) return;
  __shared__ AdamWScalars<T> shared;
  if (threadIdx.x == 0) {
    const double rate = a.control[kLearningRate];
    shared.step_size = static_cast<T>(rate / (1 - pow(numbers.beta1, a.control[kStep])));
    shared.root_correction = static_cast<T>(sqrt(1 - pow(numbers.beta2, a.control[kStep])));
    shared.scale = static_cast<T>(a.control[kGradientScale]);
    shared.keep_decayed = static_cast<T>(1 - rate * numbers.decay);
    shared.keep = static_cast<T>(1 - rate * 0.0);
  }
  __syncthreads();
  const AdamWScalars<T> step = shared;
  const double number = a.control[kStep];
  const T eps = static_cast<T>(numbers.eps), b1 = static_cast<T>(numbers.beta1), b2 = static_cast<T>(numbers.beta2);
  const T c1 = static_cast<T>(1 - numbers.beta1), c2 = static_cast<T>(1 - numbers.beta2);
  each_group(a.n, a.packed, [&](auto is_whole, std::int64_t i, std::int64_t count) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const auto gradient = take<kWhole>(a.gradient + i, count);
    auto m = take<kWhole>(a.moment[0] + i, count), v = take<kWhole>(a.moment[1] + i, count);
    auto master = take<kWhole>(a.master + i, count);
    const Philox4 words = words_for<T, M>(a.key, a.first + i, number);
    Pack<W, kEach> weight;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const T keep = i + k < a.decayed ? step.keep_decayed : step.keep;
      const T g = static_cast<T>(widen(gradient.at[k])) * step.scale;
      const T first = fma(static_cast<T>(widen(m.at[k])), b1, g * c1);
      const T second = fma(static_cast<T>(widen(v.at[k])), b2, g * g * c2);
      master.at[k] = master.at[k] * keep - first / (sqrt(second) / step.root_correction + eps) * step.step_size;
      m.at[k] = kept<M>(first, words[k] & 0xffffu);
      v.at[k] = kept<M>(second, words[k] >> 16);
      weight.at[k] = narrow<W>(master.at[k]);
    }
    put<kWhole>(a.moment[0] + i, m, count);
    put<kWhole>(a.moment[1] + i, v, count);
    put<kWhole>(a.master + i, master, count);
    if (a.weight) put<kWhole>(a.weight + i, weight, count);
  });
}

struct SgdNumbers {
  double beta, decay;
};

template <class T, class G, class W, class M>
__global__ void __launch_bounds__(kThreads) sgd_kernel(const Range<T, G, W, M> a, const SgdNumbers numbers) {
  if (a.control[kFinite] == 0) return;
  const T rate = static_cast<T>(a.control[kLearningRate]), scale = static_cast<T>(a.control[kGradientScale]);
  const T beta = static_cast<T>(numbers.beta), decay = static_cast<T>(numbers.decay);
  const double number = a.control[kStep];
  M* const rolling = a.moment[0];
  each_group(a.n, a.packed, [&](auto is_whole, std::int64_t i, std::int64_t count) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const auto gradient = take<kWhole>(a.gradient + i, count);
    auto master = take<kWhole>(a.master + i, count);
    Pack<M, kEach> momentum;
    if (rolling) momentum = take<kWhole>(rolling + i, count);
    const Philox4 words = words_for<T, M>(a.key, a.first + i, number);
    Pack<W, kEach> weight;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const T pull = i + k < a.decayed ? decay : T(0);
      T g = static_cast<T>(widen(gradient.at[k])) * scale + master.at[k] * pull;
      if (rolling) {
        g = static_cast<T>(widen(momentum.at[k])) * beta + g;
        momentum.at[k] = kept<M>(g, words[k] & 0xffffu);
      }
      master.at[k] = master.at[k] - g * rate;
      weight.at[k] = narrow<W>(master.at[k]);
    }
    if (rolling) put<kWhole>(rolling + i, momentum, count);
    put<kWhole>(a.master + i, master, count);
    if (a.weight) put<kWhole>(a.weight + i, weight, count);
  });
}

template <class S>
S* data_or_null(const Tensor& t) {
  return t ? t.data<S>() : nullptr;
}

// Calls body(TypeTag<S>) for the type of what stands beside an fp32 master: any float type of at most 32 bits.
template <class Body>
void with_narrow_float(DType dtype, Body&& body) {
  with_float(dtype, [&](auto s) {
    if constexpr (!std::is_same_v<typename decltype(s)::Type, double>)
      body(s);
    else
      LOCKSTEP_CHECK(false, "{} beside an fp32 master", name_of(dtype));
  });
}

// Calls body(range) with the operands in their types: master (fp64 or fp32), gradient, the copy that computes, and the
// moments.
template <class Args, class Body>
void with_range(const Args& a, const Tensor& moment0, const Tensor& moment1, Body&& body) {
  const auto typed = [&]<class T, class G, class W, class M>(TypeTag<T>, TypeTag<G>, TypeTag<W>, TypeTag<M>) {
    Range<T, G, W, M> range{.master = a.master.template data<T>(),
                            .weight = data_or_null<W>(a.weight),
                            .moment = {data_or_null<M>(moment0), data_or_null<M>(moment1)},
                            .gradient = a.gradient.template data<G>(),
                            .control = a.control.template data<double>(),
                            .n = a.master.elements(),
                            .decayed = a.decayed,
                            .key = a.rounding_key,
                            .first = static_cast<std::uint64_t>(a.first),
                            .packed = false};
    range.packed = packed<kEach>(range.master, range.weight, range.moment[0], range.moment[1], range.gradient);
    body(range);
  };
  if (a.master.dtype() == DType::f64)
    return typed(TypeTag<double>{}, TypeTag<double>{}, TypeTag<double>{}, TypeTag<double>{});
  with_narrow_float(a.gradient.dtype(), [&](auto g) {
    with_narrow_float(a.weight ? a.weight.dtype() : a.master.dtype(), [&](auto w) {
      if (moment0 && moment0.dtype() == DType::bf16) return typed(TypeTag<float>{}, g, w, TypeTag<bf16>{});
      typed(TypeTag<float>{}, g, w, TypeTag<float>{});
    });
  });
}

}  // namespace

void adamw(const AdamWArgs& a, lockstep::Stream& stream) {
  const AdamWNumbers numbers{.beta1 = a.beta1, .beta2 = a.beta2, .eps = a.eps, .decay = a.decay};
  with_range(a, a.m, a.v, [&]<class T, class G, class W, class M>(const Range<T, G, W, M>& range) {
    const unsigned blocks = resident_blocks(adamw_kernel<T, G, W, M>, ceil_div(range.n, kEach * kThreads));
    adamw_kernel<T, G, W, M><<<blocks, kThreads, 0, native(stream)>>>(range, numbers);
  });
  check_launch("adamw");
}

void sgd(const SgdArgs& a, lockstep::Stream& stream) {
  const SgdNumbers numbers{.beta = a.beta, .decay = a.decay};
  with_range(a, a.momentum, {}, [&]<class T, class G, class W, class M>(const Range<T, G, W, M>& range) {
    const unsigned blocks = resident_blocks(sgd_kernel<T, G, W, M>, ceil_div(range.n, kEach * kThreads));
    sgd_kernel<T, G, W, M><<<blocks, kThreads, 0, native(stream)>>>(range, numbers);
  });
  check_launch("sgd");
}

}  // namespace lockstep::cuda
