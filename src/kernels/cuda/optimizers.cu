// Each element goes through the cpu twin's operations in their order, so results are the same bits but for the bias
// corrections: pow is CUDA's, whose last bits in double may differ from the host's.
#include "kernels/optimizers.h"

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/step_control.h"

namespace lockstep::cuda {

namespace {

// Every block computes the step's scalars for itself: not so many blocks that this would cost more than the update.
constexpr unsigned kMostBlocks = 2048;

unsigned update_blocks(std::int64_t n) { return std::min(blocks_for(n), kMostBlocks); }

// The new master as the copy that computes: one rounding, also from double to 16 bits (to odd in between, so that the
// second rounding sees that something was lost by the first).
template <class W, class T>
__device__ W publish(T value) {
  if constexpr (std::is_same_v<T, double> && sizeof(W) == 2) {
    float odd = __double2float_rz(value);
    if (static_cast<double>(odd) != value) odd = __uint_as_float(__float_as_uint(odd) | 1u);
    return W(odd);
  } else {
    return narrow<W>(value);
  }
}

template <class T, class G, class W>
struct AdamWOperands {
  T *master, *m, *v;
  W* weight;
  const G* gradient;
  const double* control;
  std::int64_t n, decayed;
  double beta1, beta2, eps, decay;
};

template <class T>
struct AdamWScalars {
  T step_size, root_correction, scale, keep_decayed, keep;
};

template <class T, class G, class W>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamWOperands<T, G, W> a) {
  if (a.control[kFinite] == 0) return;
  __shared__ AdamWScalars<T> step;
  if (threadIdx.x == 0) {
    const double rate = a.control[kLearningRate];
    step.step_size = static_cast<T>(rate / (1 - pow(a.beta1, a.control[kStep])));
    step.root_correction = static_cast<T>(sqrt(1 - pow(a.beta2, a.control[kStep])));
    step.scale = static_cast<T>(a.control[kGradientScale]);
    step.keep_decayed = static_cast<T>(1 - rate * a.decay);
    step.keep = static_cast<T>(1 - rate * 0.0);
  }
  __syncthreads();
  const T eps = static_cast<T>(a.eps), b1 = static_cast<T>(a.beta1), b2 = static_cast<T>(a.beta2);
  const T c1 = static_cast<T>(1 - a.beta1), c2 = static_cast<T>(1 - a.beta2);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < a.n; i += stride) {
    const T keep = i < a.decayed ? step.keep_decayed : step.keep;
    const T g = static_cast<T>(widen(a.gradient[i])) * step.scale;
    const T first = fma(a.m[i], b1, g * c1);
    const T second = fma(a.v[i], b2, g * g * c2);
    const T p = a.master[i] * keep - first / (sqrt(second) / step.root_correction + eps) * step.step_size;
    a.m[i] = first;
    a.v[i] = second;
    a.master[i] = p;
    if (a.weight) a.weight[i] = publish<W>(p);
  }
}

template <class T, class G, class W>
struct SgdOperands {
  T *master, *momentum;
  W* weight;
  const G* gradient;
  const double* control;
  std::int64_t n, decayed;
  double beta, decay;
};

template <class T, class G, class W>
__global__ void __launch_bounds__(kThreads) sgd_kernel(SgdOperands<T, G, W> a) {
  if (a.control[kFinite] == 0) return;
  const T rate = static_cast<T>(a.control[kLearningRate]), scale = static_cast<T>(a.control[kGradientScale]);
  const T beta = static_cast<T>(a.beta), decay = static_cast<T>(a.decay);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < a.n; i += stride) {
    const T pull = i < a.decayed ? decay : T(0);
    const T old = a.master[i];
    T g = static_cast<T>(widen(a.gradient[i])) * scale + old * pull;
    if (a.momentum) {
      g = a.momentum[i] * beta + g;
      a.momentum[i] = g;
    }
    const T p = old - g * rate;
    a.master[i] = p;
    if (a.weight) a.weight[i] = publish<W>(p);
  }
}

// The three types of an update: master (fp64 or fp32), gradient, and the copy that computes.
template <class Args, class Body>
void with_types(const Args& a, Body&& body) {
  const DType weight = a.weight ? a.weight.dtype() : a.master.dtype();
  with_float(a.gradient.dtype(), [&](auto g) {
    with_float(weight, [&](auto w) {
      if (a.master.dtype() == DType::f64) return body(TypeTag<double>{}, g, w);
      body(TypeTag<float>{}, g, w);
    });
  });
}

template <class T>
T* data_or_null(const Tensor& t) {
  return t ? t.data<T>() : nullptr;
}

}  // namespace

void adamw(const AdamWArgs& a, lockstep::Stream& stream) {
  with_types(a, [&](auto t, auto g, auto w) {
    using T = typename decltype(t)::Type;
    using G = typename decltype(g)::Type;
    using W = typename decltype(w)::Type;
    const AdamWOperands<T, G, W> operands{.master = a.master.data<T>(),
                                          .m = a.m.data<T>(),
                                          .v = a.v.data<T>(),
                                          .weight = data_or_null<W>(a.weight),
                                          .gradient = a.gradient.data<G>(),
                                          .control = a.control.data<double>(),
                                          .n = a.master.elements(),
                                          .decayed = a.decayed,
                                          .beta1 = a.beta1,
                                          .beta2 = a.beta2,
                                          .eps = a.eps,
                                          .decay = a.decay};
    adamw_kernel<T, G, W><<<update_blocks(operands.n), kThreads, 0, native(stream)>>>(operands);
  });
  check_launch("adamw");
}

void sgd(const SgdArgs& a, lockstep::Stream& stream) {
  with_types(a, [&](auto t, auto g, auto w) {
    using T = typename decltype(t)::Type;
    using G = typename decltype(g)::Type;
    using W = typename decltype(w)::Type;
    const SgdOperands<T, G, W> operands{.master = a.master.data<T>(),
                                        .momentum = data_or_null<T>(a.momentum),
                                        .weight = data_or_null<W>(a.weight),
                                        .gradient = a.gradient.data<G>(),
                                        .control = a.control.data<double>(),
                                        .n = a.master.elements(),
                                        .decayed = a.decayed,
                                        .beta = a.beta,
                                        .decay = a.decay};
    sgd_kernel<T, G, W><<<update_blocks(operands.n), kThreads, 0, native(stream)>>>(operands);
  });
  check_launch("sgd");
}

}  // namespace lockstep::cuda
