#include "kernels/rmsnorm.h"

#include "kernels/cuda/amax.cuh"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/norm_rows.cuh"

namespace lockstep::cuda {

namespace {

template <class S>
struct Forward {
  Rows<S> y, sum;
  Rows<const S> x, residual;
  const S* weight;
  Compute<S>* rstd;
  Compute<S> eps;
  std::int64_t count, columns;
  unsigned* amax;
};

// Nested: rows of rows. To find one takes a division, whose registers rows of a matrix do without.
template <bool Nested>
__device__ RowPlace place_in(std::int64_t row, std::int64_t inner) {
  return Nested ? place_of(row, inner) : RowPlace{row, 0};
}

// Every operand is read once. The norm reads the sum as it is stored, rounding and all, since that is what backward
// will read.
template <class S, int Team, int Packs, bool Nested, bool Amax>
__global__ void __launch_bounds__(kTeamBlock<Team>, kForwardBlocks<Team, Packs>) forward_packs(Forward<S> a) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  each_team_row(a.count, Team, [&](std::int64_t row, bool here) {
    const RowPlace at = place_in<Nested>(row, a.x.inner);
    const int packs = here ? static_cast<int>(a.columns / kPack<S>) : 0;
    Pack<S> x[Packs];
    load_row<Team>(x, a.x[at], packs);
    T v[kPack<S>], w[kPack<S>];
    if (a.residual) {
      add_residual<Team>(x, a.residual[at], packs);
      store_row<Team>(a.sum[at], x, packs);
    }
    T squares = 0;
    for (int k = 0; k < Packs; ++k) {
      widen(v, x[k]);
      for (int i = 0; i < kPack<S>; ++i) squares = std::fma(v[i], v[i], squares);
    }
    const T r = rstd_of(team_sum(squares, Team), a.columns, a.eps);
    if (here && threadIdx.x % Team == 0) a.rstd[row] = r;
    widen_anew(x);
    for (int k = 0; k < Packs; ++k) {
      widen(v, x[k]);
      widen(w, load_one<Team>(a.weight, k, packs));  // out of a cache, and no register before it is needed
      for (int i = 0; i < kPack<S>; ++i) v[i] = v[i] * r * w[i];
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
    const RowPlace at = place_of(row, a.x.inner);
    const std::int64_t columns = here ? a.columns : 0;
    const S* in = a.x[at];
    if (a.residual) {
      S* sum = a.sum[at];
      add_residual(sum, in, a.residual[at], columns, team);
      in = sum;
    }
    T squares = 0;
    each_column<S>(columns, team, [&](std::int64_t c) {
      const T v = widen(in[c]);
      squares = std::fma(v, v, squares);
    });
    const T r = rstd_of(team_sum(squares, team), a.columns, a.eps);
    if (here && threadIdx.x % team == 0) a.rstd[row] = r;
    S* out = a.y[at];
    each_column<S>(columns, team, [&](std::int64_t c) {
      const T v = widen(in[c]) * r * widen(a.weight[c]);
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
  const S* weight;
  const Compute<S>* rstd;
  std::int64_t count, columns;
  unsigned* amax;
};

// dx = r·(w∘dy) - x·r³·(Σ w∘dy∘x)/C. This is the factor of x; r³ alone would leave the range for large rows.
template <class T>
__device__ T pull_of(T dots, std::int64_t columns, T r) {
  return dots / static_cast<T>(columns) * r * r * r;
}

// dx may overlay dy or dresidual: a thread has read all that it overwrites. y is what forward computes of x, with the
// same operations, after dx so that the two do not hold registers at once.
template <class S, int Team, int Packs, bool Again, bool Amax>
__global__ void __launch_bounds__(kTeamBlock<Team>) backward_input_packs(BackwardInput<S> a) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  each_team_row(a.count, Team, [&](std::int64_t row, bool here) {
    const RowPlace at = place_of(row, a.x.inner);
    const int packs = here ? static_cast<int>(a.columns / kPack<S>) : 0;
    Pack<S> dy[Packs], x[Packs], weight[Packs], other[Packs];
    load_row<Team>(dy, a.dy[at], packs);
    load_row<Team>(x, a.x[at], packs);
    load_row<Team>(other, a.dresidual[at], a.dresidual ? packs : 0);
    load_row<Team>(weight, a.weight, packs);
    const T r = here ? a.rstd[row] : T(0);
    T g[kPack<S>], w[kPack<S>], v[kPack<S>];
    T dots = 0;
    for (int k = 0; k < Packs; ++k) {
      widen(g, dy[k]);
      widen(w, weight[k]);
      widen(v, x[k]);
      for (int i = 0; i < kPack<S>; ++i) dots = std::fma(g[i] * w[i], v[i], dots);
    }
    const T pull = pull_of(team_sum(dots, Team), a.columns, r);
    for (int k = 0; k < Packs; ++k) {
      widen(g, dy[k]);
      widen(w, weight[k]);
      widen(v, x[k]);
      for (int i = 0; i < kPack<S>; ++i) g[i] = g[i] * w[i] * r - v[i] * pull;
      if (a.dresidual) add_gradient<S>(g, other[k]);
      if (has_pack<Team>(k, packs)) largest.note_all(g);
      dy[k] = narrow_pack<S>(g);
    }
    store_row<Team>(a.dx[at], dy, packs);
    if constexpr (Again) {
      widen_anew(weight);
      widen_anew(x);
      for (int k = 0; k < Packs; ++k) {
        widen(w, weight[k]);
        widen(v, x[k]);
        for (int i = 0; i < kPack<S>; ++i) v[i] = v[i] * r * w[i];
        x[k] = narrow_pack<S>(v);
      }
      store_row<Team>(a.y[at], x, packs);
    }
  });
  largest.add_to(a.amax);
}

// The row's sum is complete before a thread writes, and then it reads only what it overwrites itself.
template <class S, bool Amax>
__global__ void __launch_bounds__(1024, 1) backward_input_plain(BackwardInput<S> a, int team) {
  using T = Compute<S>;
  Magnitude<Amax> largest;
  each_team_row(a.count, team, [&](std::int64_t row, bool here) {
    const RowPlace at = place_of(row, a.x.inner);
    const std::int64_t columns = here ? a.columns : 0;
    const S *in = a.x[at], *grad = a.dy[at], *other = a.dresidual[at];
    const T r = here ? a.rstd[row] : T(0);
    T dots = 0;
    each_column<S>(columns, team,
                   [&](std::int64_t c) { dots = std::fma(widen(grad[c]) * widen(a.weight[c]), widen(in[c]), dots); });
    const T pull = pull_of(team_sum(dots, team), a.columns, r);
    S *out = a.dx[at], *again = a.y[at];
    each_column<S>(columns, team, [&](std::int64_t c) {
      const T v = widen(in[c]), w = widen(a.weight[c]);
      const T d = widen(grad[c]) * w * r - v * pull;
      const T joined = a.dresidual ? widen(other[c]) + d : d;
      largest.note(joined);
      out[c] = narrow<S>(joined);
      if (a.y) again[c] = narrow<S>(v * r * w);
    });
  });
  largest.add_to(a.amax);
}

template <class S, bool Nested>
struct WeightTerm {
  using Stored = S;
  static constexpr int kSums = 1, kInFlight = 4;
  struct Loaded {
    Pack<S> dy, x;
    Compute<S> rstd;
  };
  Rows<const S> dy, x;
  const Compute<S>* rstd;

  template <bool Whole>
  __device__ Loaded load(std::int64_t row, std::int64_t c, int count) const {
    const RowPlace at = place_in<Nested>(row, x.inner);
    return {load_some<Whole>(dy[at] + c, count), load_some<Whole>(x[at] + c, count), rstd[row]};
  }
  __device__ void add(Compute<S> (&total)[kSums][kPack<S>], const Loaded& l) const {
    Compute<S> g[kPack<S>], v[kPack<S>];
    widen(g, l.dy);
    widen(v, l.x);
    for (int i = 0; i < kPack<S>; ++i) total[0][i] += g[i] * (v[i] * l.rstd);
  }
};

}  // namespace

void rmsnorm_forward(const RmsNormForwardArgs& a, lockstep::Stream& stream) {
  if (a.amax) begin_amax(a.amax, stream);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const Forward<S> args{.y = rows<S>(a.y),
                          .sum = rows<S>(a.sum),
                          .x = rows<S>(a.x),
                          .residual = rows<S>(a.residual),
                          .weight = a.weight.data<S>(),
                          .rstd = a.rstd.data<T>(),
                          .eps = static_cast<T>(a.eps),
                          .count = a.rstd.elements(),
                          .columns = a.x.dim(-1),
                          .amax = bits_of(a.amax)};
    const bool whole = in_packs(args.columns, args.y, args.sum, args.x, args.residual) && aligned(args.weight);
    with_amax<S>(a.amax, [&](auto amax) {
      const auto packed = [nested = args.x.inner > 1, amax](auto team, auto packs) {
        return nested && !amax ? forward_packs<S, team, packs, true, false>
                               : forward_packs<S, team, packs, false, amax>;
      };
      with_forward_cut(ceil_div(args.columns, kPack<S>),
                       norm_launcher(args, whole, stream, packed, forward_plain<S, amax>));
    });
  });
  check_launch("rmsnorm_forward");
}

void rmsnorm_backward_input(const RmsNormBackwardInputArgs& a, lockstep::Stream& stream) {
  if (a.amax) begin_amax(a.amax, stream);
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const BackwardInput<S> args{.dx = rows<S>(a.dx),
                                .y = rows<S>(a.y),
                                .dy = rows<S>(a.dy),
                                .x = rows<S>(a.x),
                                .dresidual = rows<S>(a.dresidual),
                                .weight = a.weight.data<S>(),
                                .rstd = a.rstd.data<Compute<S>>(),
                                .count = a.rstd.elements(),
                                .columns = a.x.dim(-1),
                                .amax = bits_of(a.amax)};
    const bool whole = in_packs(args.columns, args.dx, args.y, args.dy, args.x, args.dresidual) && aligned(args.weight);
    with_amax<S>(a.amax, [&](auto amax) {
      const auto packed = [again = static_cast<bool>(a.y), amax](auto team, auto packs) {
        return again ? backward_input_packs<S, team, packs, true, amax>
                     : backward_input_packs<S, team, packs, false, amax>;
      };
      with_backward_cut(ceil_div(args.columns, kPack<S>),
                        norm_launcher(args, whole, stream, packed, backward_input_plain<S, amax>));
    });
  });
  check_launch("rmsnorm_backward_input");
}

void rmsnorm_backward_weight(const RmsNormBackwardWeightArgs& a, lockstep::Stream& stream) {
  with_float_and_result(a.x.dtype(), a.dweight.dtype(), [&](auto s, auto g) {
    using S = typename decltype(s)::Type;
    using G = typename decltype(g)::Type;
    const auto sum = [&](const auto& term) {
      const std::int64_t columns = a.x.dim(-1);
      column_sums("rmsnorm_backward_weight", stream, SumResults<G, 1>{{a.dweight.data<G>()}}, a.rstd.elements(),
                  columns, a.accumulate, term, in_packs(columns, term.dy, term.x));
    };
    const Rows<const S> dy = rows<S>(a.dy), x = rows<S>(a.x);
    const Compute<S>* rstd = a.rstd.data<Compute<S>>();
    if (x.inner > 1)
      sum(WeightTerm<S, true>{dy, x, rstd});
    else
      sum(WeightTerm<S, false>{dy, x, rstd});
  });
}

}  // namespace lockstep::cuda
