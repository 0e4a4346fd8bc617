// A row split over a team of threads, which keep it in registers: what the norms are made of.
//
// Thread t of a team of n has the packs t, t + n, t + 2n, … of its row. How many threads and packs is a function of the
// pass, the width and the type alone, and so is the order of a row's sums: a thread adds its elements in ascending
// order, the lanes of a warp are added in a butterfly, warps in ascending order. Operands that cannot be read in packs,
// and rows too wide for the registers, go through memory again for each pass over the row, in the same order.
#pragma once
#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

// A team is part of a warp, a warp, or a block of its own; this is the number of threads of its block.
template <int Team>
inline constexpr int kTeamBlock = Team < 128 ? 128 : Team;

// Both call body(threads of a team, packs of a thread), compile-time constants, for rows of this many packs. Rows too
// wide to be kept have 0 packs.
//
// A GPU's memory is busy when every unit has some tens of kilobytes on their way, all the time. A forward pass has one
// row of them for each team, so that threads take many packs, and a warp is the team of rows as wide as models have:
// no barrier makes all of a block wait for its slowest load, and the warps of a unit drift apart until some always
// load while others compute and write. With more than eight packs a thread, too few warps would find registers.
template <class Body>
void with_forward_cut(std::int64_t packs, Body&& body) {
  const auto call = [&]<int Team, int Packs>() {
    body(std::integral_constant<int, Team>{}, std::integral_constant<int, Packs>{});
  };
  if (packs <= 8) return call.template operator()<8, 1>();
  if (packs <= 16) return call.template operator()<16, 1>();
  if (packs <= 32) return call.template operator()<32, 1>();
  if (packs <= 64) return call.template operator()<32, 2>();
  if (packs <= 128) return call.template operator()<32, 4>();
  if (packs <= 256) return call.template operator()<32, 8>();
  if (packs <= 512) return call.template operator()<128, 4>();
  if (packs <= 1024) return call.template operator()<256, 4>();
  if (packs <= 2048) return call.template operator()<512, 4>();
  call.template operator()<1024, 0>();
}

// Blocks of a forward pass that must find room on a unit: five have twenty warps with four kilobytes each on their way.
template <int Team, int Packs>
inline constexpr int kForwardBlocks = Packs == 8 ? 5 : 1024 / kTeamBlock<Team>;

// A backward pass has three or four rows on their way for each team: one or two packs of each are enough, and more
// would take the registers of other teams.
template <class Body>
void with_backward_cut(std::int64_t packs, Body&& body) {
  const auto call = [&]<int Team, int Packs>() {
    body(std::integral_constant<int, Team>{}, std::integral_constant<int, Packs>{});
  };
  if (packs <= 8) return call.template operator()<8, 1>();
  if (packs <= 16) return call.template operator()<16, 1>();
  if (packs <= 32) return call.template operator()<32, 1>();
  if (packs <= 128) return call.template operator()<32, 4>();
  if (packs <= 256) return call.template operator()<256, 1>();
  if (packs <= 512) return call.template operator()<256, 2>();
  if (packs <= 1024) return call.template operator()<512, 2>();
  if (packs <= 2048) return call.template operator()<1024, 2>();
  call.template operator()<1024, 0>();
}

// Blocks for `rows` rows; kernels stride over the rest.
inline unsigned team_blocks(std::int64_t rows, int team) { return blocks_for(rows, std::max(1, 128 / team)); }

// In a kernel of teams: body(row, whether there is such a row) for the rows of this thread's team. Every thread of the
// block takes part in every round, since sums need all lanes.
template <class Body>
__device__ inline void each_team_row(std::int64_t rows, int team, Body&& body) {
  const int teams = static_cast<int>(blockDim.x) / team;
  for (std::int64_t first = std::int64_t{blockIdx.x} * teams; first < rows; first += std::int64_t{gridDim.x} * teams) {
    const std::int64_t row = first + static_cast<int>(threadIdx.x) / team;
    body(row, row < rows);
  }
}

// The sums of N values over the team, the same for all its threads.
template <class T, int N>
__device__ inline void team_sums(T (&value)[N], int team) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    if (offset < team)
      for (int n = 0; n < N; ++n) value[n] += __shfl_xor_sync(0xffffffffu, value[n], offset);
  if (team <= 32) return;
  __shared__ T partial[N][32];
  __syncthreads();  // a call before may still be read
  if (threadIdx.x % 32 == 0)
    for (int n = 0; n < N; ++n) partial[n][threadIdx.x / 32] = value[n];
  __syncthreads();
  for (int n = 0; n < N; ++n) {
    value[n] = 0;
    for (int warp = 0; warp < team / 32; ++warp) value[n] += partial[n][warp];
  }
}
template <class T>
__device__ inline T team_sum(T value, int team) {
  T one[1] = {value};
  team_sums(one, team);
  return one[0];
}

// The packs of a row that are this thread's; `count` is how many the row has, 0 where there is no row. Those beyond are
// zero.
template <int Team>
__device__ inline bool has_pack(int k, int count) {
  return k * Team + static_cast<int>(threadIdx.x) % Team < count;
}
template <int Team, class S>
__device__ inline Pack<S> load_one(const S* row, int k, int count) {
  const int at = k * Team + static_cast<int>(threadIdx.x) % Team;
  return at < count ? load_pack(row + at * kPack<S>) : Pack<S>{};
}
template <int Team, class S, int Packs>
__device__ inline void load_row(Pack<S> (&to)[Packs], const S* row, int count) {
#pragma unroll
  for (int k = 0; k < Packs; ++k) to[k] = load_one<Team>(row, k, count);
}
template <int Team, class S, int Packs>
__device__ inline void store_row(S* row, const Pack<S> (&from)[Packs], int count) {
  const int lane = static_cast<int>(threadIdx.x) % Team;
#pragma unroll
  for (int k = 0; k < Packs; ++k)
    if (k * Team + lane < count) store_pack(row + (k * Team + lane) * kPack<S>, from[k]);
}

// Between two passes over the same packs: the compiler would keep what it widened in the first for the second, and pay
// for the few instructions it saves with twice the registers.
template <class S, int Packs>
__device__ inline void widen_anew(Pack<S> (&packs)[Packs]) {
#pragma unroll
  for (int k = 0; k < Packs; ++k)
#pragma unroll
    for (unsigned& word : packs[k].word) asm volatile("" : "+r"(word));
}

// Without packs: body(c) for the columns of a row that are this thread's, in the order in which packs hold them.
template <class S, class Body>
__device__ inline void each_column(std::int64_t columns, int team, Body&& body) {
  const std::int64_t step = std::int64_t{team} * kPack<S>;
  for (std::int64_t pack = static_cast<int>(threadIdx.x) % team * kPack<S>; pack < columns; pack += step)
    for (std::int64_t c = pack; c < columns && c < pack + kPack<S>; ++c) body(c);
}

}  // namespace lockstep::cuda
