// The warps of Hopper's attention backward that compute nothing: one brings what is computed from, two carry dq away.
#pragma once
#include "kernels/cuda/attention/hopper_attention_tiles.cuh"

namespace lockstep::cuda::hopper {

// By one thread: the block's keys and values, then q and d_o with their statistics, tile by tile, as far ahead as there
// are stages.
template <class Tile>
__device__ void bring_tiles(const BackwardCall& call, typename Tile::Shared& shared, const Part& part) {
  if (part.count == 0) return;
  shared.keys_full.expect(2 * sizeof shared.k);
  for (int p = 0; p < Tile::kPanels; ++p) {
    const BoxAt at{64 * p, part.n * Tile::kKeys, part.key_head, part.sample};
    copy_box(shared.k + p * Tile::kKeyPanel, call.k, at, shared.keys_full);
    copy_box(shared.v + p * Tile::kKeyPanel, call.v, at, shared.keys_full);
  }
  const auto bring = [&](std::byte* to, const CUtensorMap& map, float* statistics, const float* from, const Walk& walk,
                         Barrier& full, unsigned more = 0) {
    full.expect(Tile::kQueryPanel * Tile::kPanels + Tile::kStatistics + more);
    for (int p = 0; p < Tile::kPanels; ++p)
      copy_box(to + p * Tile::kQueryPanel, map,
               {64 * p, walk.tile * Tile::kQueries, walk.query_head(call, part), part.sample}, full);
    copy_in(statistics, from + walk.index(call, part) * Tile::kQueries, Tile::kStatistics, full);
  };
  Walk walk(part);
  int q = 0, q_round = 1;
#pragma unroll 1
  for (unsigned i = 0; i < part.count; ++i, walk.next(call)) {
    const unsigned d_o = i % 2;
    shared.q_empty[q].wait(q_round);
    bring(shared.q[q], call.q, shared.lse[q], call.lse, walk, shared.q_full[q], call.first ? Tile::kStatistics : 0);
    if (call.first)
      copy_in(shared.first[q], call.first + (part.sample * call.tiles + walk.tile) * Tile::kQueries, Tile::kStatistics,
              shared.q_full[q]);
    if (++q == Tile::kQStages) q = 0, q_round ^= 1;
    shared.do_empty[d_o].wait(i / 2 % 2 ^ 1);
    bring(shared.d_o[d_o], call.d_o, shared.delta[d_o], call.delta, walk, shared.do_full[d_o]);
  }
}

__device__ inline unsigned read_turn(const unsigned* turn) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(turn) : "memory");
  return value;
}
__device__ inline void end_turn(unsigned* turn) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(turn) : "memory");
}
// Between a turn, which threads read and write, and the sums, which the copy engine does.
__device__ inline void order_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// By one warp: what computing group w makes of dq, into global memory, each part in the block's turn. The first block
// that a tile sees stores, so nothing need be zeroed before.
template <class Tile>
__device__ void add_up_dq(const BackwardCall& call, typename Tile::Shared& shared, const Part& part, int w) {
  const bool leads = threadIdx.x % 32 == 0;
  Walk walk(part);
  if (part.count > 0) pass(kDqEmpty + w, kDqThreads);
#pragma unroll 1
  for (unsigned i = 0; i < part.count; ++i, walk.next(call)) {
    const unsigned index = walk.index(call, part) * 2 + w;
    float* const sums = call.dq + std::size_t{index} * (Tile::kDqPart / 4);
    const int turn = part.n - call.sight.first_seen(part.sample, walk.tile * Tile::kQueries) / Tile::kKeys;
    if (leads)
      while (read_turn(call.turns + index) != static_cast<unsigned>(turn)) {
      }
    __syncwarp();
    meet(kDqFull + w, kDqThreads);
    if (leads) {
      order_copies();
      if (turn == 0)
        copy_out(sums, shared.dq[w], Tile::kDqPart);
      else
        add_out(sums, shared.dq[w], Tile::kDqPart);
      commit_copies();
      copies_read();
    }
    __syncwarp();
    if (i + 1 < part.count) pass(kDqEmpty + w, kDqThreads);
    if (leads) {
      copies_done();
      order_copies();
      end_turn(call.turns + index);
    }
  }
}

}  // namespace lockstep::cuda::hopper
