// What LayerNorm and RMSNorm have in common: the residual that is added before the norm and behind its backward, the
// reciprocal deviation, and which of its kernels a pass launches.
#pragma once
#include "kernels/cuda/row_teams.cuh"

namespace lockstep::cuda {

template <class T>
__device__ inline T rstd_of(T squares, std::int64_t columns, T eps) {
  return T(1) / std::sqrt(squares / static_cast<T>(columns) + eps);
}

// x + residual, rounded to what is stored: the norm reads the sum as backward will.
template <int Team, class S, int Packs>
__device__ inline void add_residual(Pack<S> (&x)[Packs], const S* residual, int packs) {
  Compute<S> v[kPack<S>], w[kPack<S>];
  for (int k = 0; k < Packs; ++k) {
    widen(v, x[k]);
    widen(w, load_one<Team>(residual, k, packs));
    for (int i = 0; i < kPack<S>; ++i) v[i] = v[i] + w[i];
    x[k] = narrow_pack<S>(v);
  }
}
// The same element by element.
template <class S>
__device__ inline void add_residual(S* sum, const S* x, const S* residual, std::int64_t columns, int team) {
  each_column<S>(columns, team, [&](std::int64_t c) { sum[c] = narrow<S>(widen(x[c]) + widen(residual[c])); });
}

// The residual's own gradient is added to that of the norm.
template <class S>
__device__ inline void add_gradient(Compute<S> (&g)[kPack<S>], const Pack<S>& dresidual) {
  Compute<S> v[kPack<S>];
  widen(v, dresidual);
  for (int i = 0; i < kPack<S>; ++i) g[i] = v[i] + g[i];
}

// Launches, for the team and the packs that a cut gives: packed(team, packs), a kernel that keeps rows in registers,
// where operands are whole packs and rows are not too wide; else the kernel that reads element by element.
template <class Args, class Packed>
auto norm_launcher(const Args& args, bool whole, lockstep::Stream& stream, Packed packed, void (*plain)(Args, int)) {
  return [=, &stream](auto team, auto packs) {
    const unsigned blocks = team_blocks(args.count, team);
    if constexpr (packs > 0)
      if (whole) return packed(team, packs)<<<blocks, kTeamBlock<team>, 0, native(stream)>>>(args);
    plain<<<blocks, kTeamBlock<team>, 0, native(stream)>>>(args, team);
  };
}

}  // namespace lockstep::cuda
