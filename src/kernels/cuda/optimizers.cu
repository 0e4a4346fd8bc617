// Each element goes through the cpu twin's operations in their order, so results of one control tensor are the same
// bits, those rounded by chance included: bias corrections, whose pow is not, are in that tensor (step_control.h).
//
// A thread takes four elements at a time, which is also what one call of the random generator serves. The list of
// tensors that rounding by chance needs travels with a launch, as much of it as an argument may hold: a unit with a
// longer one takes several launches.
#include "kernels/optimizers.h"

#include "kernels/cuda/flat.cuh"
#include "kernels/step_control.h"

namespace lockstep::cuda {

namespace {

constexpr int kEach = 4;

// What is computed in.
template <class P>
using Wide = std::conditional_t<std::is_same_v<P, double>, double, float>;

// What both optimizers update, in terms of: master, gradient, the copy that computes (may be none), and the moments.
template <class P, class G, class W, class M>
struct Range {
  P* master;
  W* weight;
  M* moment[2];  // AdamW's m and v; SGD's momentum (may be none)
  const G* gradient;
  const double* control;
  std::int64_t n, decayed;
  bool packed;

  // Of its elements [begin, end).
  Range part(std::int64_t begin, std::int64_t end) const {
    const auto from = [begin](auto* p) { return p ? p + begin : nullptr; };
    Range r{.master = master + begin,
            .weight = from(weight),
            .moment = {from(moment[0]), from(moment[1])},
            .gradient = gradient + begin,
            .control = control,
            .n = end - begin,
            .decayed = decayed - begin,
            .packed = false};
    r.packed = lockstep::cuda::packed<kEach>(r.master, r.weight, r.moment[0], r.moment[1], r.gradient);
    return r;
  }
};

// The tensors of a launch whose state is rounded by chance; nothing of one whose state is not.
constexpr int kRuns = 48;
template <bool OfMoments, bool OfMaster>
struct Tensors {
  RoundingRun runs[kRuns];
  int count;
  std::int64_t first;

  __device__ RoundingWords words(int& at, std::int64_t i, double step) const {
    return rounding_words<OfMoments, OfMaster>(runs, count, at, first + i, static_cast<std::uint64_t>(step));
  }
};
template <>
struct Tensors<false, false> {
  __device__ RoundingWords words(int&, std::int64_t, double) const { return {}; }
};
template <class P, class M>
using TensorsOf = Tensors<!std::is_same_v<M, Wide<P>>, !std::is_same_v<P, Wide<P>>>;

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

// State as it is stored, rounded by chance where it is narrower.
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

template <class P, class G, class W, class M>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const Range<P, G, W, M> a, const AdamWNumbers numbers,
                                                         const __grid_constant__ TensorsOf<P, M> tensors) {
  using T = Wide<P>;
  if (a.control[kFinite] == 0) return;
  __shared__ AdamWScalars<T> shared;
  if (threadIdx.x == 0) {
    const double rate = a.control[kLearningRate];
    shared.step_size = static_cast<T>(rate / a.control[kFirstCorrection]);
    shared.root_correction = static_cast<T>(a.control[kSecondCorrection]);
    shared.scale = static_cast<T>(a.control[kGradientScale]);
    shared.keep_decayed = static_cast<T>(1 - rate * numbers.decay);
    shared.keep = static_cast<T>(1 - rate * 0.0);
  }
  __syncthreads();
  const AdamWScalars<T> step = shared;
  const double number = a.control[kStep];
  const T eps = static_cast<T>(numbers.eps), b1 = static_cast<T>(numbers.beta1), b2 = static_cast<T>(numbers.beta2);
  const T c1 = static_cast<T>(1 - numbers.beta1), c2 = static_cast<T>(1 - numbers.beta2);
  int at = 0;
  each_group(a.n, a.packed, [&](auto is_whole, std::int64_t i, std::int64_t count) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const auto gradient = take<kWhole>(a.gradient + i, count);
    auto m = take<kWhole>(a.moment[0] + i, count), v = take<kWhole>(a.moment[1] + i, count);
    auto master = take<kWhole>(a.master + i, count);
    const RoundingWords words = tensors.words(at, i, number);
    Pack<W, kEach> weight;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const T keep = i + k < a.decayed ? step.keep_decayed : step.keep;
      const T g = static_cast<T>(widen(gradient.at[k])) * step.scale;
      const T first = fma(static_cast<T>(widen(m.at[k])), b1, g * c1);
      const T second = fma(static_cast<T>(widen(v.at[k])), b2, g * g * c2);
      const T old = static_cast<T>(widen(master.at[k]));
      const T p = old * keep - first / (sqrt(second) / step.root_correction + eps) * step.step_size;
      m.at[k] = kept<M>(first, words.moments[k] & 0xffffu);
      v.at[k] = kept<M>(second, words.moments[k] >> 16);
      master.at[k] = kept<P>(p, words.master[k] & 0xffffu);
      weight.at[k] = narrow<W>(p);
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

template <class P, class G, class W, class M>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(const Range<P, G, W, M> a, const SgdNumbers numbers, const __grid_constant__ TensorsOf<P, M> tensors) {
  using T = Wide<P>;
  if (a.control[kFinite] == 0) return;
  const T rate = static_cast<T>(a.control[kLearningRate]), scale = static_cast<T>(a.control[kGradientScale]);
  const T beta = static_cast<T>(numbers.beta), decay = static_cast<T>(numbers.decay);
  const double number = a.control[kStep];
  M* const rolling = a.moment[0];
  int at = 0;
  each_group(a.n, a.packed, [&](auto is_whole, std::int64_t i, std::int64_t count) {
    constexpr bool kWhole = decltype(is_whole)::value;
    const auto gradient = take<kWhole>(a.gradient + i, count);
    auto master = take<kWhole>(a.master + i, count);
    Pack<M, kEach> momentum;
    if (rolling) momentum = take<kWhole>(rolling + i, count);
    const RoundingWords words = tensors.words(at, i, number);
    Pack<W, kEach> weight;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const T pull = i + k < a.decayed ? decay : T(0);
      const T old = static_cast<T>(widen(master.at[k]));
      T g = static_cast<T>(widen(gradient.at[k])) * scale + old * pull;
      if (rolling) {
        g = static_cast<T>(widen(momentum.at[k])) * beta + g;
        momentum.at[k] = kept<M>(g, words.moments[k] & 0xffffu);
      }
      const T p = old - g * rate;
      master.at[k] = kept<P>(p, words.master[k] & 0xffffu);
      weight.at[k] = narrow<W>(p);
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

// Calls body(TypeTag<S>) for the type of what stands beside a master of at most 32 bits: any other such float type.
template <class Body>
void with_narrow_float(DType dtype, Body&& body) {
  with_float(dtype, [&](auto s) {
    if constexpr (!std::is_same_v<typename decltype(s)::Type, double>)
      body(s);
    else
      LOCKSTEP_CHECK(false, "{} beside a narrower master", name_of(dtype));
  });
}

// Calls body(range, tensors) for all of the range, or for the parts of it that a list of tensors is enough for.
template <class Args, class P, class G, class W, class M, class Body>
void each_launch(const Args& a, const Range<P, G, W, M>& all, Body&& body) {
  TensorsOf<P, M> tensors{};
  if constexpr (std::is_empty_v<TensorsOf<P, M>>) {
    body(all.part(0, all.n), tensors);
  } else {
    const std::span<const RoundingRun> runs = a.rounding;
    std::size_t next = 0;
    for (std::int64_t begin = 0; begin < all.n;) {
      while (next < runs.size() && runs[next].end <= a.first + begin) ++next;
      // Runs that alternate stay together.
      std::size_t last = next, whole = next;
      for (; last < runs.size() && last - next < kRuns; ++last)
        if (last + 1 == runs.size() || runs[last + 1].begin != runs[last].begin) whole = last + 1;
      LOCKSTEP_CHECK(whole > next || next == runs.size(), "more than {} runs alternate", kRuns);
      const std::int64_t end =
          whole == runs.size() ? all.n : std::clamp<std::int64_t>(runs[whole].begin - a.first, begin, all.n);
      std::copy(runs.begin() + next, runs.begin() + whole, tensors.runs);
      tensors.count = static_cast<int>(whole - next);
      tensors.first = a.first + begin;
      body(all.part(begin, end), tensors);
      begin = end;
    }
  }
}

// Calls body(range, tensors) with the operands in their types: master, gradient, the copy that computes, and the
// moments.
template <class Args, class Body>
void with_range(const Args& a, const Tensor& moment0, const Tensor& moment1, Body&& body) {
  const auto typed = [&]<class P, class G, class W, class M>(TypeTag<P>, TypeTag<G>, TypeTag<W>, TypeTag<M>) {
    each_launch(a,
                Range<P, G, W, M>{.master = a.master.template data<P>(),
                                  .weight = data_or_null<W>(a.weight),
                                  .moment = {data_or_null<M>(moment0), data_or_null<M>(moment1)},
                                  .gradient = a.gradient.template data<G>(),
                                  .control = a.control.template data<double>(),
                                  .n = a.master.elements(),
                                  .decayed = a.decayed,
                                  .packed = false},
                body);
  };
  if (a.master.dtype() == DType::f64)
    return typed(TypeTag<double>{}, TypeTag<double>{}, TypeTag<double>{}, TypeTag<double>{});
  const auto with_moments = [&](auto p, auto g, auto w) {
    if (moment0 && moment0.dtype() == DType::bf16) return typed(p, g, w, TypeTag<bf16>{});
    typed(p, g, w, TypeTag<float>{});
  };
  with_narrow_float(a.gradient.dtype(), [&](auto g) {
    if (a.master.dtype() == DType::bf16) return with_moments(TypeTag<bf16>{}, g, TypeTag<bf16>{});
    with_narrow_float(a.weight ? a.weight.dtype() : DType::f32, [&](auto w) { with_moments(TypeTag<float>{}, g, w); });
  });
}

}  // namespace

void adamw(const AdamWArgs& a, lockstep::Stream& stream) {
  const AdamWNumbers numbers{.beta1 = a.beta1, .beta2 = a.beta2, .eps = a.eps, .decay = a.decay};
  with_range(a, a.m, a.v,
             [&]<class P, class G, class W, class M>(const Range<P, G, W, M>& range, const TensorsOf<P, M>& tensors) {
               const unsigned blocks = resident_blocks(adamw_kernel<P, G, W, M>, ceil_div(range.n, kEach * kThreads));
               adamw_kernel<P, G, W, M><<<blocks, kThreads, 0, native(stream)>>>(range, numbers, tensors);
             });
  check_launch("adamw");
}

void sgd(const SgdArgs& a, lockstep::Stream& stream) {
  const SgdNumbers numbers{.beta = a.beta, .decay = a.decay};
  with_range(a, a.momentum, {},
             [&]<class P, class G, class W, class M>(const Range<P, G, W, M>& range, const TensorsOf<P, M>& tensors) {
               const unsigned blocks = resident_blocks(sgd_kernel<P, G, W, M>, ceil_div(range.n, kEach * kThreads));
               sgd_kernel<P, G, W, M><<<blocks, kThreads, 0, native(stream)>>>(range, numbers, tensors);
             });
  check_launch("sgd");
}

}  // namespace lockstep::cuda
