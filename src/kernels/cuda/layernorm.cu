#include "kernels/layernorm.h"

#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/norm_rows.cuh"

namespace lockstep::cuda {

namespace {

template <class S>
struct Forward {
  Rows<S> y, sum;
  Rows<const S> x, residual;
  const S *weight, *bias;
  Compute<S>*mean, *rstd;
  Compute<S> eps;
  std::int64_t count, columns;
  unsigned* amax;
};

// Every operand is read once. The norm reads the sum as it is stored, rounding and all, since that is what backward
// will read. The squares are taken around the mean: the one-pass formula cancels when the mean is large.
template <class S, int Team, int Packs, bool Amax>
__global__ void __launch_bounds__(kTeamBlock<Team>, kForwardBlocks<Team, Packs>) forward_packs(Forward<S> a) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  each_team_row(a.count, Team, [&](std::int64_t row, bool here) {
    const RowPlace at{row, 0};
    const int packs = here ? static_cast<int>(a.columns / kPack<S>) : 0;
    Pack<S> x[Packs];
    load_row<Team>(x, a.x[at], packs);
    T v[kPack<S>], w[kPack<S>], b[kPack<S>];
    if (a.residual) {
      add_residual<Team>(x, a.residual[at], packs);
      store_row<Team>(a.sum[at], x, packs);
    }
    T total = 0;
    for (int k = 0; k < Packs; ++k) {
      widen(v, x[k]);
      for (int i = 0; i < kPack<S>; ++i) total += v[i];
    }
    const T m = team_sum(total, Team) / static_cast<T>(a.columns);
    widen_anew(x);
    T squares = 0;
    for (int k = 0; k < Packs; ++k) {
      if (k * Team + static_cast<int>(threadIdx.x) % Team >= packs) continue;  // no elements, but they would count
      widen(v, x[k]);
      for (int i = 0; i < kPack<S>; ++i) squares = std::fma(v[i] - m, v[i] - m, squares);
    }
    const T r = rstd_of(team_sum(squares, Team), a.columns, a.eps);
    if (here && threadIdx.x % Team == 0) {
      a.mean[row] = m;
      a.rstd[row] = r;
    }
    widen_anew(x);
    for (int k = 0; k < Packs; ++k) {
      widen(v, x[k]);
      widen(w, load_one<Team>(a.weight, k, packs));  // out of a cache, and no register before it is needed
      widen(b, load_one<Team>(a.bias, k, packs));
      for (int i = 0; i < kPack<S>; ++i) v[i] = std::fma((v[i] - m) * r, w[i], b[i]);
      if (has_pack<Team>(k, packs)) largest.note_all(v);
      x[k] = narrow_pack<S>(v);
    }
    if (!Amax || a.y) store_row<Team>(a.y[at], x, packs);
  });
  largest.add_to(a.amax);
}

// The same element by element. Every thread reads back only elements of `sum` that it wrote itself.
template <class S, bool Amax>
__global__ void __launch_bounds__(1024, 1) forward_plain(Forward<S> a, int team) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  each_team_row(a.count, team, [&](std::int64_t row, bool here) {
    const RowPlace at{row, 0};
    const std::int64_t columns = here ? a.columns : 0;
    const S* in = a.x[at];
    if (a.residual) {
      S* sum = a.sum[at];
      add_residual(sum, in, a.residual[at], columns, team);
      in = sum;
    }
    T total = 0;
    each_column<S>(columns, team, [&](std::int64_t c) { total += widen(in[c]); });
    const T m = team_sum(total, team) / static_cast<T>(a.columns);
    T squares = 0;
    each_column<S>(columns, team, [&](std::int64_t c) {
      const T v = widen(in[c]) - m;
      squares = std::fma(v, v, squares);
    });
    const T r = rstd_of(team_sum(squares, team), a.columns, a.eps);
    if (here && threadIdx.x % team == 0) {
      a.mean[row] = m;
      a.rstd[row] = r;
    }
    S* out = a.y[at];
    each_column<S>(columns, team, [&](std::int64_t c) {
      const T v = std::fma((widen(in[c]) - m) * r, widen(a.weight[c]), widen(a.bias[c]));
      largest.note(v);
      if (!Amax || a.y) out[c] = narrow<S>(v);
    });
  });
  largest.add_to(a.amax);
}

template <class S>
struct BackwardInput {
  Rows<S> dx, y;
  Rows<const S> dy, x, dresidual;
  const S *weight, *bias;  // the bias only with y
  const Compute<S>*mean, *rstd;
  std::int64_t count, columns;
  unsigned* amax;
};

// dx may overlay dy or dresidual: a thread has read all that it overwrites. y is what forward computes of x, with the
// same operations, after dx so that the two do not hold registers at once.
template <class S, int Team, int Packs, bool Again, bool Amax>
__global__ void __launch_bounds__(kTeamBlock<Team>) backward_input_packs(BackwardInput<S> a) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  const T width = static_cast<T>(a.columns);
  each_team_row(a.count, Team, [&](std::int64_t row, bool here) {
    const RowPlace at{row, 0};
    const int packs = here ? static_cast<int>(a.columns / kPack<S>) : 0;
    Pack<S> dy[Packs], x[Packs], weight[Packs], other[Packs];
    load_row<Team>(dy, a.dy[at], packs);
    load_row<Team>(x, a.x[at], packs);
    load_row<Team>(other, a.dresidual[at], a.dresidual ? packs : 0);
    load_row<Team>(weight, a.weight, packs);
    const T m = here ? a.mean[row] : T(0), r = here ? a.rstd[row] : T(0);
    T g[kPack<S>], w[kPack<S>], v[kPack<S>];
    T sums[2] = {};  // of g = w∘dy, and of g∘(x - m)·r; a pack beyond the row has no g
    for (int k = 0; k < Packs; ++k) {
      widen(g, dy[k]);
      widen(w, weight[k]);
      widen(v, x[k]);
      for (int i = 0; i < kPack<S>; ++i) {
        const T product = g[i] * w[i];
        sums[0] += product;
        sums[1] = std::fma(product, (v[i] - m) * r, sums[1]);
      }
    }
    team_sums(sums, Team);
    const T mean_g = sums[0] / width, mean_gx = sums[1] / width;
    for (int k = 0; k < Packs; ++k) {
      widen(g, dy[k]);
      widen(w, weight[k]);
      widen(v, x[k]);
      for (int i = 0; i < kPack<S>; ++i) g[i] = (g[i] * w[i] - mean_g - (v[i] - m) * r * mean_gx) * r;
      if (a.dresidual) add_gradient<S>(g, other[k]);
      if (has_pack<Team>(k, packs)) largest.note_all(g);
      dy[k] = narrow_pack<S>(g);
    }
    store_row<Team>(a.dx[at], dy, packs);
    if constexpr (Again) {
      widen_anew(weight);
      widen_anew(x);
      load_row<Team>(other, a.bias, packs);
      for (int k = 0; k < Packs; ++k) {
        widen(w, weight[k]);
        widen(v, x[k]);
        widen(g, other[k]);
        for (int i = 0; i < kPack<S>; ++i) v[i] = std::fma((v[i] - m) * r, w[i], g[i]);
        x[k] = narrow_pack<S>(v);
      }
      store_row<Team>(a.y[at], x, packs);
    }
  });
  largest.add_to(a.amax);
}

// The row's sums are complete before a thread writes, and then it reads only what it overwrites itself.
template <class S, bool Amax>
__global__ void __launch_bounds__(1024, 1) backward_input_plain(BackwardInput<S> a, int team) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  const T width = static_cast<T>(a.columns);
  each_team_row(a.count, team, [&](std::int64_t row, bool here) {
    const RowPlace at{row, 0};
    const std::int64_t columns = here ? a.columns : 0;
    const S *in = a.x[at], *grad = a.dy[at], *other = a.dresidual[at];
    const T m = here ? a.mean[row] : T(0), r = here ? a.rstd[row] : T(0);
    T sums[2] = {};
    each_column<S>(columns, team, [&](std::int64_t c) {
      const T product = widen(grad[c]) * widen(a.weight[c]);
      sums[0] += product;
      sums[1] = std::fma(product, (widen(in[c]) - m) * r, sums[1]);
    });
    team_sums(sums, team);
    const T mean_g = sums[0] / width, mean_gx = sums[1] / width;
    S *out = a.dx[at], *again = a.y[at];
    each_column<S>(columns, team, [&](std::int64_t c) {
      const T hat = (widen(in[c]) - m) * r, w = widen(a.weight[c]);
      const T d = (widen(grad[c]) * w - mean_g - hat * mean_gx) * r;
      const T joined = a.dresidual ? widen(other[c]) + d : d;
      largest.note(joined);
      out[c] = narrow<S>(joined);
      if (a.y) again[c] = narrow<S>(std::fma(hat, w, widen(a.bias[c])));
    });
  });
  largest.add_to(a.amax);
}

// Sums for the weight and for the bias, of one reading.
template <class S>
struct WeightTerm {
  using Stored = S;
  static constexpr int kSums = 2, kInFlight = 4;
  struct Loaded {
    Pack<S> dy, x;
    Compute<S> mean, rstd;
  };
  Rows<const S> dy, x;
  const Compute<S>*mean, *rstd;

  template <bool Whole>
  __device__ Loaded load(std::int64_t row, std::int64_t c, int count) const {
    const RowPlace at{row, 0};
    return {load_some<Whole>(dy[at] + c, count), load_some<Whole>(x[at] + c, count), mean[row], rstd[row]};
  }
  __device__ void add(Compute<S> (&total)[kSums][kPack<S>], const Loaded& l) const {
    Compute<S> g[kPack<S>], v[kPack<S>];
    widen(g, l.dy);
    widen(v, l.x);
    for (int i = 0; i < kPack<S>; ++i) {
      total[0][i] += g[i] * ((v[i] - l.mean) * l.rstd);
      total[1][i] += g[i];
    }
  }
};

}  // namespace

void layernorm_forward(const LayerNormForwardArgs& a, lockstep::Stream& stream) {
  if (a.amax) begin_amax(a.amax, stream);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const Forward<S> args{.y = rows<S>(a.y),
                          .sum = rows<S>(a.sum),
                          .x = rows<S>(a.x),
                          .residual = rows<S>(a.residual),
                          .weight = a.weight.data<S>(),
                          .bias = a.bias.data<S>(),
                          .mean = a.mean.data<T>(),
                          .rstd = a.rstd.data<T>(),
                          .eps = static_cast<T>(a.eps),
                          .count = a.x.dim(0),
                          .columns = a.x.dim(1),
                          .amax = bits_of(a.amax)};
    const bool whole =
        in_packs(args.columns, args.y, args.sum, args.x, args.residual) && aligned(args.weight) && aligned(args.bias);
    with_amax<S>(a.amax, [&](auto amax) {
      const auto packed = [amax](auto team, auto packs) { return forward_packs<S, team, packs, amax>; };
      with_forward_cut(ceil_div(args.columns, kPack<S>),
                       norm_launcher(args, whole, stream, packed, forward_plain<S, amax>));
    });
  });
  check_launch("layernorm_forward");
}

void layernorm_backward_input(const LayerNormBackwardInputArgs& a, lockstep::Stream& stream) {
  if (a.amax) begin_amax(a.amax, stream);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const BackwardInput<S> args{.dx = rows<S>(a.dx),
                                .y = rows<S>(a.y),
                                .dy = rows<S>(a.dy),
                                .x = rows<S>(a.x),
                                .dresidual = rows<S>(a.dresidual),
                                .weight = a.weight.data<S>(),
                                .bias = a.bias.none() ? nullptr : a.bias.data<S>(),
                                .mean = a.mean.data<T>(),
                                .rstd = a.rstd.data<T>(),
                                .count = a.x.dim(0),
                                .columns = a.x.dim(1),
                                .amax = bits_of(a.amax)};
    const bool whole = in_packs(args.columns, args.dx, args.y, args.dy, args.x, args.dresidual) &&
                       aligned(args.weight) && aligned(args.bias);
    with_amax<S>(a.amax, [&](auto amax) {
      const auto packed = [again = static_cast<bool>(a.y), amax](auto team, auto packs) {
        return again ? backward_input_packs<S, team, packs, true, amax>
                     : backward_input_packs<S, team, packs, false, amax>;
      };
      with_backward_cut(ceil_div(args.columns, kPack<S>),
                        norm_launcher(args, whole, stream, packed, backward_input_plain<S, amax>));
    });
  });
  check_launch("layernorm_backward_input");
}

void layernorm_backward_weight(const LayerNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.x.dtype(), a.dweight.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    using T = Compute<S>;
    const std::int64_t columns = a.x.dim(1);
    const WeightTerm<S> term{rows<S>(a.dy), rows<S>(a.x), a.mean.data<T>(), a.rstd.data<T>()};
    column_sums("layernorm_backward_weight", stream, SumResults<G, 2>{{a.dweight.data<G>(), a.dbias.data<G>()}},
                a.x.dim(0), columns, a.accumulate, term, in_packs(columns, term.dy, term.x));
  });
}

}  // namespace lockstep::cuda
