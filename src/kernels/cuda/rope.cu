#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

namespace {

double slowed(double frequency, const RopeSlowing& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < s.original_positions / s.high_freq_factor) return frequency;
  if (wavelength > s.original_positions / s.low_freq_factor) return frequency / s.factor;
  const double blend =
      (s.original_positions / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - blend) * frequency / s.factor + blend * frequency;
}

// Frequencies come from the host's pow, as an argument of the kernel: the angle of a large position multiplies their
// last bit, and so it is the cpu's angle exactly. Only cos and sin are CUDA's (an ulp of double).
constexpr int kFrequencies = 256;  // for one launch; more than any head has
struct Frequencies {
  double of[kFrequencies];
};

// Columns [first, first + count) of the tables.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rope_table_kernel(T* cos_table, T* sin_table, const std::int32_t* positions, std::int64_t length, std::int64_t half,
                      std::int64_t first, std::int64_t count, const __grid_constant__ Frequencies frequencies) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < length * count;
       item += stride) {
    const std::int64_t row = item / count, column = item % count;
    const double angle = positions[row] * frequencies.of[column];
    cos_table[row * half + first + column] = static_cast<T>(cos(angle));
    sin_table[row * half + first + column] = static_cast<T>(sin(angle));
  }
}

template <class T>
void fill_tables(const RopeTableArgs& a, lockstep::Stream& stream) {
  const std::int64_t length = a.cos.dim(0), half = a.cos.dim(1);
  for (std::int64_t first = 0; first < half; first += kFrequencies) {
    const std::int64_t count = std::min<std::int64_t>(kFrequencies, half - first);
    Frequencies frequencies{};
    for (std::int64_t i = 0; i < count; ++i) {
      const double frequency = std::pow(a.theta, -static_cast<double>(first + i) / static_cast<double>(half));
      frequencies.of[i] = a.slowing ? slowed(frequency, *a.slowing) : frequency;
    }
    rope_table_kernel<T><<<blocks_for(length * count), kThreads, 0, native(stream)>>>(
        a.cos.data<T>(), a.sin.data<T>(), a.positions.data<std::int32_t>(), length, half, first, count, frequencies);
    check_launch("rope_table");
  }
}

struct HeadsLayout {
  std::int64_t batch, length, heads, half;
  std::int64_t stride_b, stride_t, stride_h;
  const std::int32_t* positions;  // rows of the tables; none: a token's own
  std::int64_t positions_stride;
  std::int64_t rows;  // of the tables
  // The row of token t of sample b; outside of the tables, -1.
  __device__ std::int64_t angle(std::int64_t b, std::int64_t t) const {
    if (!positions) return t;
    const std::int64_t at = positions[b * positions_stride + t];
    return at >= 0 && at < rows ? at : -1;
  }
};

// Pairs (u, v) turned by the angle of cos c and sin d.
template <class T>
__device__ void turn(T& u, T& v, T c, T d) {
  const T low = fma(u, c, -(v * d));
  v = fma(v, c, u * d);
  u = low;
}

// A thread turns a pack of pairs of some heads of one token, the same angles for all of them: heads h, h + threads, …,
// so that threads side by side have heads side by side. Two heads, four packs on their way, keep memory busy at eight
// blocks a unit. More heads would read the angles less often, but they come from caches; what counts is that short
// blocks leave little over when the last of them end, since this kernel runs for some thirty microseconds.
constexpr int kHeadsEach = 2, kTurners = 128;  // threads of a block
template <class S>
struct Turning {
  S* x;
  const Compute<S>*cos_table, *sin_table;
  Compute<S> direction;
  unsigned* amax;
};
template <class S, class Largest>
__device__ void turn_packs(const Turning<S>& a, const HeadsLayout& l, Largest& largest) {
  using T = Compute<S>;
  const unsigned packs = static_cast<unsigned>(l.half) / kPack<S>, heads = static_cast<unsigned>(l.heads);
  const unsigned threads = (heads + kHeadsEach - 1) / kHeadsEach;  // over the heads of one token
  const unsigned item = blockIdx.x * kTurners + threadIdx.x, slot = item / packs, row = slot / threads;
  const unsigned length = static_cast<unsigned>(l.length);
  if (row >= static_cast<unsigned>(l.batch) * length) return;
  const std::int64_t i = item % packs * kPack<S>, b = row / length, t = row % length;
  S* token = a.x + b * l.stride_b + t * l.stride_t + i;
  Pack<S> low[kHeadsEach], high[kHeadsEach];
#pragma unroll
  for (int n = 0; n < kHeadsEach; ++n) {
    const unsigned h = slot % threads + n * threads;
    if (h >= heads) continue;
    low[n] = load_pack(token + h * l.stride_h);
    high[n] = load_pack(token + h * l.stride_h + l.half);
  }
  T c[kPack<S>], d[kPack<S>], u[kPack<S>], v[kPack<S>];
  const std::int64_t angle = l.angle(b, t);
  if (angle >= 0) {
    read<true>(c, a.cos_table + angle * l.half + i, kPack<S>);
    read<true>(d, a.sin_table + angle * l.half + i, kPack<S>);
  } else {
    for (int k = 0; k < kPack<S>; ++k) c[k] = d[k] = std::numeric_limits<T>::quiet_NaN();
  }
  for (int k = 0; k < kPack<S>; ++k) d[k] = d[k] * a.direction;
#pragma unroll
  for (int n = 0; n < kHeadsEach; ++n) {
    const unsigned h = slot % threads + n * threads;
    if (h >= heads) continue;
    widen(u, low[n]);
    widen(v, high[n]);
    for (int k = 0; k < kPack<S>; ++k) turn(u[k], v[k], c[k], d[k]);
    largest.note_all(u);
    largest.note_all(v);
    store_pack(token + h * l.stride_h, narrow_pack<S>(u));
    store_pack(token + h * l.stride_h + l.half, narrow_pack<S>(v));
  }
}
template <class S, bool Amax>
__global__ void __launch_bounds__(kTurners, 8) rope_packs(Turning<S> a, HeadsLayout l) {
  Magnitude<Amax> largest;
  turn_packs(a, l, largest);
  largest.add_to(a.amax);
}

// For all other operands: one thread turns one pair.
template <class S, bool Amax>
__global__ void __launch_bounds__(kThreads) rope_pairs(Turning<S> a, HeadsLayout l) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  const std::int64_t pairs = l.batch * l.length * l.heads * l.half;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < pairs;
       item += stride) {
    const std::int64_t i = item % l.half, head = item / l.half;
    const std::int64_t h = head % l.heads, row = head / l.heads;
    const std::int64_t b = row / l.length, t = row % l.length;
    S* low = a.x + b * l.stride_b + t * l.stride_t + h * l.stride_h + i;
    S* high = low + l.half;
    const std::int64_t angle = l.angle(b, t);
    const T nothing = std::numeric_limits<T>::quiet_NaN();
    const T c = angle < 0 ? nothing : a.cos_table[angle * l.half + i];
    const T d = angle < 0 ? nothing : a.sin_table[angle * l.half + i] * a.direction;
    T u = widen(*low), v = widen(*high);
    turn(u, v, c, d);
    largest.note(u);
    largest.note(v);
    *low = narrow<S>(u);
    *high = narrow<S>(v);
  }
  largest.add_to(a.amax);
}

}  // namespace

void rope_table(const RopeTableArgs& a, lockstep::Stream& stream) {
  if (a.cos.dtype() == DType::f64)
    fill_tables<double>(a, stream);
  else
    fill_tables<float>(a, stream);
}

void rope(const RopeArgs& a, lockstep::Stream& stream) {
  const HeadsLayout layout{.batch = a.x.dim(0),
                           .length = a.x.dim(1),
                           .heads = a.x.dim(2),
                           .half = a.x.dim(3) / 2,
                           .stride_b = a.x.stride(0),
                           .stride_t = a.x.stride(1),
                           .stride_h = a.x.stride(2),
                           .positions = a.positions ? a.positions.data<std::int32_t>() : nullptr,
                           .positions_stride = a.positions ? a.positions.stride(0) : 0,
                           .rows = a.cos.dim(0)};
  if (a.amax) begin_amax(a.amax, stream);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const bool whole = layout.half % kPack<S> == 0 && layout.half > 0 && aligned(a.x.data<S>()) &&
                       aligned(a.cos.data<T>()) && aligned(a.sin.data<T>()) && layout.stride_b % kPack<S> == 0 &&
                       layout.stride_t % kPack<S> == 0 && layout.stride_h % kPack<S> == 0;
    const std::int64_t items =
        layout.batch * layout.length * ceil_div(layout.heads, kHeadsEach) * (layout.half / kPack<S>);
    const Turning<S> turning{.x = a.x.data<S>(),
                             .cos_table = a.cos.data<T>(),
                             .sin_table = a.sin.data<T>(),
                             .direction = a.inverse ? T(-1) : T(1),
                             .amax = bits_of(a.amax)};
    with_amax<S>(a.amax, [&](auto amax) {
      if (whole && items > 0 && items < std::int64_t{1} << 31)
        rope_packs<S, amax>
            <<<static_cast<unsigned>(ceil_div(items, kTurners)), kTurners, 0, native(stream)>>>(turning, layout);
      else
        rope_pairs<S, amax><<<blocks_for(a.x.elements() / 2), kThreads, 0, native(stream)>>>(turning, layout);
    });
  });
  check_launch("rope");
}

}  // namespace lockstep::cuda
