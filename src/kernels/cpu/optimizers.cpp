#include "kernels/optimizers.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/chances.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"
#include "kernels/step_control.h"

namespace lockstep::cpu {

namespace {

// Calls body(begin, end, decay) for the pieces of [0, n) on either side of the decay boundary, cut into ranges for the
// workers.
template <class Body>
void each_decay_range(Stream& stream, std::int64_t n, std::int64_t decayed, double decay, Body&& body) {
  each_range(stream, n, [&](std::int64_t begin, std::int64_t count) {
    const std::int64_t end = begin + count, cut = std::clamp(decayed, begin, end);
    if (cut > begin) body(begin, cut, decay);
    if (end > cut) body(cut, end, 0.0);
  });
}

// Loads a vector of gradients of type G as T.
template <class T, class G, class Load>
[[gnu::always_inline]] inline Vec<T> gradient_at(const G* p, std::int64_t count, Load&& load_as) {
  if constexpr (std::is_same_v<T, Compute<G>>) {
    return load_as(p);
  } else {
    Vec<T> v{};
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, kLanes<T>); ++i)
      v[i] = static_cast<T>(static_cast<Compute<G>>(p[i]));
    return v;
  }
}

// Writes the new master into the copy that computes.
template <class T, class W>
[[gnu::always_inline]] inline void publish(W* weight, Vec<T> value, std::int64_t count) {
  if (!weight) return;
  const std::int64_t some = std::min<std::int64_t>(count, kLanes<T>);
  if constexpr (std::is_same_v<T, Compute<W>>) {
    some == kLanes<T> ? store(weight, value) : store_some(weight, value, some);
  } else {
    for (std::int64_t i = 0; i < some; ++i) weight[i] = convert<T, W>(value[i]);
  }
}

// A vector's new state.
template <class T>
struct AdamWState {
  Vec<T> first, second, p;
};
template <class T>
struct SgdState {
  Vec<T> g, p;
};

template <class P, class G, class W, class M>
void run_adamw(const AdamWArgs& a, Stream& stream) {
  using T = Compute<P>;
  const double* control = a.control.data<double>();
  const double rate = control[kLearningRate];
  const T step_size = static_cast<T>(rate / control[kFirstCorrection]);
  const T root_correction = static_cast<T>(control[kSecondCorrection]);
  const T scale = static_cast<T>(control[kGradientScale]), eps = static_cast<T>(a.eps);
  const T b1 = static_cast<T>(a.beta1), b2 = static_cast<T>(a.beta2);
  const T c1 = static_cast<T>(1 - a.beta1), c2 = static_cast<T>(1 - a.beta2);
  P* master = a.master.data<P>();
  M *m = a.m.data<M>(), *v = a.v.data<M>();
  const G* gradient = a.gradient.data<G>();
  W* weight = a.weight ? a.weight.data<W>() : nullptr;
  each_decay_range(
      stream, a.master.elements(), a.decayed, a.decay, [&](std::int64_t begin, std::int64_t end, double decay) {
        const T keep = static_cast<T>(1 - rate * decay);
        Chances<T, P, M> chances(a.rounding, a.first, control[kStep]);
        chances.each_vector(
            begin, end,
            [=](std::int64_t i, auto load) __attribute__((always_inline)) {
              const Vec<T> g = gradient_at<T>(gradient + i, end - i, load) * scale;
              const Vec<T> first = fma(load(m + i), broadcast(b1), g * c1);
              const Vec<T> second = fma(load(v + i), broadcast(b2), g * g * c2);
              const Vec<T> p = load(master + i) * keep - first / (sqrt<T>(second) / root_correction + eps) * step_size;
              return AdamWState<T>{first, second, p};
            },
            [=](std::int64_t i, const AdamWState<T>& state, auto store, const auto& keeper)
                __attribute__((always_inline)) {
                  keeper.first_moment(m + i, state.first, store);
                  keeper.second_moment(v + i, state.second, store);
                  keeper.master(master + i, state.p, store);
                  publish<T>(weight ? weight + i : nullptr, state.p, end - i);
                });
      });
}

template <class P, class G, class W, class M>
void run_sgd(const SgdArgs& a, Stream& stream) {
  using T = Compute<P>;
  const double* control = a.control.data<double>();
  const T rate = static_cast<T>(control[kLearningRate]), scale = static_cast<T>(control[kGradientScale]);
  const T beta = static_cast<T>(a.beta);
  P* master = a.master.data<P>();
  M* momentum = a.momentum ? a.momentum.data<M>() : nullptr;
  const G* gradient = a.gradient.data<G>();
  W* weight = a.weight ? a.weight.data<W>() : nullptr;
  each_decay_range(stream, a.master.elements(), a.decayed, a.decay,
                   [&](std::int64_t begin, std::int64_t end, double decay) {
                     const T pull = static_cast<T>(decay);
                     Chances<T, P, M> chances(a.rounding, a.first, control[kStep]);
                     chances.each_vector(
                         begin, end,
                         [=](std::int64_t i, auto load) __attribute__((always_inline)) {
                           const Vec<T> old = load(master + i);
                           Vec<T> g = gradient_at<T>(gradient + i, end - i, load) * scale + old * pull;
                           if (momentum) g = load(momentum + i) * beta + g;
                           return SgdState<T>{g, old - g * rate};
                         },
                         [=](std::int64_t i, const SgdState<T>& state, auto store, const auto& keeper)
                             __attribute__((always_inline)) {
                               if (momentum) keeper.first_moment(momentum + i, state.g, store);
                               keeper.master(master + i, state.p, store);
                               publish<T>(weight ? weight + i : nullptr, state.p, end - i);
                             });
                   });
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

// The types of an update: master, gradient, the copy that computes, and the moments.
template <class Args, class Body>
void with_types(const Args& a, const Tensor& moment, Body&& body) {
  if (a.master.dtype() == DType::f64)
    return body(TypeTag<double>{}, TypeTag<double>{}, TypeTag<double>{}, TypeTag<double>{});
  const auto with_moments = [&](auto p, auto g, auto w) {
    if (moment && moment.dtype() == DType::bf16) return body(p, g, w, TypeTag<bf16>{});
    body(p, g, w, TypeTag<float>{});
  };
  with_narrow_float(a.gradient.dtype(), [&](auto g) {
    if (a.master.dtype() == DType::bf16) return with_moments(TypeTag<bf16>{}, g, TypeTag<bf16>{});
    with_narrow_float(a.weight ? a.weight.dtype() : DType::f32, [&](auto w) { with_moments(TypeTag<float>{}, g, w); });
  });
}

}  // namespace

void adamw(const AdamWArgs& a, lockstep::Stream& stream) {
  if (a.control.data<double>()[kFinite] == 0) return;
  with_types(a, a.m, [&]<class P, class G, class W, class M>(TypeTag<P>, TypeTag<G>, TypeTag<W>, TypeTag<M>) {
    run_adamw<P, G, W, M>(a, Stream::of(stream));
  });
}

void sgd(const SgdArgs& a, lockstep::Stream& stream) {
  if (a.control.data<double>()[kFinite] == 0) return;
  with_types(a, a.momentum, [&]<class P, class G, class W, class M>(TypeTag<P>, TypeTag<G>, TypeTag<W>, TypeTag<M>) {
    run_sgd<P, G, W, M>(a, Stream::of(stream));
  });
}

}  // namespace lockstep::cpu
