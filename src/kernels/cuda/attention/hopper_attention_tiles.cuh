// What a block of Hopper's attention backward works on, and where that is in shared memory.
//
// A block owns 128 keys of one key/value head and meets them with the tiles of queries that see them: the last tile
// first, down to the diagonal, and each for all query heads of the group before the next. So the sums of dk and dv stay
// in registers from start to end, and blocks that started together read the same queries at the same time, which the L2
// cache serves.
//
// dq is summed in global memory, keys ascending: block n adds to a tile when all blocks before it that the tile sees
// have. Blocks draw their numbers
// as they start, those with the first keys first (they have most to do), so a block waits only for such as run or are
// done: no deadlock. And since every block walks the same tiles in the same order, one that started later also comes
// later, and in the long run finds that its turn has come.
//
// A chain is the blocks of one key/value head of one sample. What they read and add to stays in cache while they run
// together, and comes from memory otherwise; so chains go in rounds, few enough at once that several blocks of each run
// together.
//
// Three warp groups: one brings tiles (a warp) and adds up dq (two warps), two compute, 64 keys each.
#pragma once
#include <cstddef>

#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/cuda/attention/hopper_copies.cuh"
#include "kernels/cuda/attention/hopper_sight.cuh"

namespace lockstep::cuda::hopper {

// A block's part of the work.
struct Part {
  int n, sample, key_head;  // keys [128 n, 128 n + 128)
  int last;                 // tile of queries that sees them
  unsigned count;           // of tiles, each query head's counted
};

// Rows of 64 elements (128 bytes) are what copies bring and products read: a head of 128 is two such panels.
template <int kHeadWidth>
struct BackwardTile {
  static_assert(kHeadWidth == 64 || kHeadWidth == 128);
  static constexpr int kWidth = kHeadWidth;
  static constexpr int kKeys = kHopperKeys, kQueries = hopper_queries(kWidth);
  static constexpr int kPanels = kWidth / 64;
  static constexpr int kGroups = kKeys / 64;  // warp groups that compute
  static constexpr int kThreads = 128 * (kGroups + 1);
  // q is read from its tile's first product to its last, d_o for a shorter time.
  static constexpr int kQStages = 3, kDoStages = 2;  // the latter told by a tile's number being odd or even

  // Bytes.
  static constexpr int kKeyPanel = kKeys * 128, kQueryPanel = kQueries * 128;
  static constexpr int kStatistics = kQueries * 4;
  static constexpr int kScores = kQueries * kKeys * 2;
  // Of dq, each computing group makes 64 x 64: its queries, or its columns where a tile has 64 queries only.
  static constexpr int kDqPart = 64 * 64 * 4;
  static constexpr bool kDqByColumns = kQueries == 64;

  struct Shared {
    alignas(1024) std::byte k[kKeyPanel * kPanels];
    std::byte v[kKeyPanel * kPanels];
    std::byte q[kQStages][kQueryPanel * kPanels];
    std::byte d_o[kDoStages][kQueryPanel * kPanels];
    std::byte ds[2][kScores];  // gradients of scores: queries by keys, in two panels of 64 keys
    float dq[kGroups][kDqPart / 4];
    float lse[kQStages][kQueries];
    float delta[kDoStages][kQueries];
    int first[kQStages][kQueries];  // with documents
    Barrier keys_full, q_full[kQStages], q_empty[kQStages], do_full[kDoStages], do_empty[kDoStages];
    Barrier ds_empty[2];
    unsigned block;  // its number
    Part part;       // here, since those who compute have no registers to spare

    // By one thread, before the block meets. Of those who compute, each thread arrives for itself: one for its warp
    // would be 1% faster with heads of 128 (none of 64), and racecheck would see the others' reads race with the copies
    // that follow.
    __device__ void start() {
      constexpr int kReaders = 128 * kGroups;
      keys_full.start(1);
      for (Barrier& b : q_full) b.start(1);
      for (Barrier& b : do_full) b.start(1);
      for (Barrier& b : q_empty) b.start(kReaders);
      for (Barrier& b : do_empty) b.start(kReaders);
      for (Barrier& b : ds_empty) b.start(kReaders);
      show_barriers();
    }
  };
};

// The numbered barriers, for computing group w each number + w. 0 is the whole block's.
inline constexpr int kDqFull = 1, kDqEmpty = 3, kTurn = 5;
inline constexpr int kDqThreads = 128 + 32;  // a computing group and the warp that adds up its dq

struct BackwardCall {
  CUtensorMap q, k, v, d_o;
  const float* lse;    // (B, H, tiles, kQueries), in units of log 2; order within a tile: statistics_place
  const float* delta;  // the same: the sums over D of o times d_o
  const int* first;    // (B, tiles, kQueries), in that order too: the keys with which queries' documents begin; or null
  float* dq;           // (B, H, tiles, 2, 64 * 64), in the order of registers
  unsigned* turns;     // (B, H, tiles, 2)
  unsigned* next_block;
  __nv_bfloat16 *dk, *dv;
  Strides of_dk, of_dv;
  Sight sight;
  int tiles, samples, key_heads, group;
  int round;  // chains at once
  float scale, scale_log2;
};

// Where a row's statistics are within its tile: a computing thread reads those of its four columns of 16 at once.
__device__ inline int statistics_place(int row) { return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2; }

// By all threads of the block.
template <class Tile>
__device__ Part part_of(const BackwardCall& call, int block) {
  const int chains = call.samples * call.key_heads, blocks = (call.sight.keys + Tile::kKeys - 1) / Tile::kKeys;
  const int first = block / (call.round * blocks) * call.round, within = block % (call.round * blocks);
  const int chains_at_once = min(call.round, chains - first);
  const int n = within / chains_at_once, chain = first + within % chains_at_once;
  const int sample = chain / call.key_heads;
  const int begin = call.sight.causal ? max(n * Tile::kKeys - call.sight.shift(), 0) / Tile::kQueries : 0;
  int end = call.tiles;
  // Documents never begin earlier than those before them: the tiles that see these keys come first.
  if (call.sight.starts) {
    end = 0;
    for (int from = 0; from < call.tiles; from += Tile::kThreads) {
      const int tile = from + static_cast<int>(threadIdx.x);
      end += __syncthreads_count(tile < call.tiles &&
                                 call.sight.first_seen(sample, tile * Tile::kQueries) < (n + 1) * Tile::kKeys);
    }
  }
  return {n, sample, chain % call.key_heads, end - 1, static_cast<unsigned>(max(end - begin, 0) * call.group)};
}

// The order of tiles, the same for all warps of all blocks.
struct Walk {
  int tile, head = 0;  // head within the group

  __device__ explicit Walk(const Part& part) : tile(part.last) {}
  __device__ void next(const BackwardCall& call) {
    if (++head == call.group) head = 0, --tile;
  }
  __device__ int query_head(const BackwardCall& call, const Part& part) const {
    return part.key_head * call.group + head;
  }
  // Of all tiles of all heads and samples.
  __device__ unsigned index(const BackwardCall& call, const Part& part) const {
    return (part.sample * call.key_heads * call.group + query_head(call, part)) * call.tiles + tile;
  }
};

}  // namespace lockstep::cuda::hopper
