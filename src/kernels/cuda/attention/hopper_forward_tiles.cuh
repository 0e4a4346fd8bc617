// The tiles of Hopper's attention forward: what a block works on, the warp that brings it, and the warp groups that
// compute.
//
// A block owns a tile of queries of one head, 64 for each computing warp group, and meets them with the tiles of keys
// that they see, ascending. Scores, probabilities and the output's sums stay in registers. While the tensor cores make
// the next scores and add the last probabilities' products, the group turns scores into probabilities; and groups take
// turns at starting products, so that one computes exponentials while the tensor cores work for another.
#pragma once
#include <cmath>
#include <cstddef>

#include "kernels/cuda/attention/hopper_copies.cuh"
#include "kernels/cuda/attention/hopper_products.cuh"
#include "kernels/cuda/attention/hopper_sight.cuh"

namespace lockstep::cuda::hopper {

// Rows of 64 elements (128 bytes) are what copies bring and products read: a head of 128 is two such panels.
template <int kHeadWidth, int kComputingGroups, bool kTakeTurns = true>
struct ForwardTile {
  static constexpr bool kTurns = kTakeTurns;
  static_assert(kHeadWidth == 64 || kHeadWidth == 128);
  static constexpr int kWidth = kHeadWidth, kGroups = kComputingGroups;
  static constexpr int kQueries = 64 * kGroups, kKeys = 128;
  static constexpr int kPanels = kWidth / 64;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kStages = 2;  // of keys, and of values

  // Bytes.
  static constexpr int kKeyPanel = kKeys * 128, kQueryPanel = kQueries * 128;

  struct Shared {
    alignas(1024) std::byte q[kQueryPanel * kPanels];
    std::byte k[kStages][kKeyPanel * kPanels];
    std::byte v[kStages][kKeyPanel * kPanels];
    Barrier q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];

    // By one thread, before the block meets.
    __device__ void start() {
      q_full.start(1);
      for (int s = 0; s < kStages; ++s) {
        k_full[s].start(1), v_full[s].start(1);
        k_empty[s].start(128 * kGroups), v_empty[s].start(128 * kGroups);
      }
      show_barriers();
    }
  };
};

struct ForwardCall {
  CUtensorMap q, k, v;
  __nv_bfloat16* o;
  Strides of_o;
  float* lse;  // (B, H, queries)
  Sight sight;
  int samples, heads, group;
  float scale, scale_log2;
};

// Which queries and keys meet in a block: tiles [from, from + count) of keys.
struct ForwardPart {
  int tile, sample, head, from, count;
};

// The last tile first: under the causal mask it has most to do. All heads of a tile before the next, so that blocks
// that run together read the same keys.
template <class Tile>
__device__ ForwardPart forward_part(const ForwardCall& call, int block) {
  const Sight& sight = call.sight;
  const int heads = call.samples * call.heads, tiles = (sight.queries + Tile::kQueries - 1) / Tile::kQueries;
  ForwardPart part;
  part.tile = tiles - 1 - block / heads;
  part.sample = block % heads / call.heads;
  part.head = block % heads % call.heads;
  const int first = part.tile * Tile::kQueries, seen = sight.seen(first + Tile::kQueries);
  part.from = sight.first_seen(part.sample, first) / Tile::kKeys;
  part.count = max((seen + Tile::kKeys - 1) / Tile::kKeys - part.from, 0);
  return part;
}

// By one thread.
template <class Tile>
__device__ void bring_keys(const ForwardCall& call, typename Tile::Shared& shared, const ForwardPart& part) {
  if (part.count == 0) return;
  shared.q_full.expect(sizeof shared.q);
  for (int p = 0; p < Tile::kPanels; ++p)
    copy_box(shared.q + p * Tile::kQueryPanel, call.q, {64 * p, part.tile * Tile::kQueries, part.head, part.sample},
             shared.q_full);
  const auto bring = [&](std::byte* to, const CUtensorMap& map, int tile, Barrier& full) {
    full.expect(Tile::kKeyPanel * Tile::kPanels);
    for (int p = 0; p < Tile::kPanels; ++p)
      copy_box(to + p * Tile::kKeyPanel, map, {64 * p, tile * Tile::kKeys, part.head / call.group, part.sample}, full);
  };
  int stage = 0, round = 1;
#pragma unroll 1
  for (int i = 0; i < part.count; ++i) {
    shared.k_empty[stage].wait(round);
    bring(shared.k[stage], call.k, part.from + i, shared.k_full[stage]);
    shared.v_empty[stage].wait(round);
    bring(shared.v[stage], call.v, part.from + i, shared.v_full[stage]);
    if (++stage == Tile::kStages) stage = 0, round ^= 1;
  }
}

template <class Tile>
class ForwardComputer {
 public:
  __device__ ForwardComputer(const ForwardCall& call, typename Tile::Shared& shared, const ForwardPart& part, int w)
      : call_(call),
        shared_(shared),
        part_(part),
        w_(w),
        first_query_(part.tile * Tile::kQueries + w * 64),
        q_(Operand::at(shared_address(shared.q) + w * 64 * 128)),
        k_(Operand::at(shared_address(shared.k))),
        v_(Operand::at(shared_address(shared.v), Tile::kKeyPanel)) {
    all_from_ = call.sight.first_seen(part.sample, first_query_ + 63);
    for (int half = 0; half < 2; ++half) {
      first_[half] = call.sight.first_seen(part.sample, row(half));
      seen_[half] = call.sight.seen(row(half) + 1);
    }
  }

  __device__ void run() {
    if (part_.count > 0) {
      shared_.q_full.wait(0);
      if (w_ == Tile::kGroups - 1) end_turn();  // the first is group 0's
      shared_.k_full[0].wait(0);
      float s[64];
      take_turn();
      begin_products();
      multiply_keys(s, 0);
      end_turn();
      products_left<0>();
      seen(s);
      shared_.k_empty[0].arrive();
      hide(s, part_.from);
      float shrink[2];
      make_probabilities(s, shrink);
      std::uint32_t p[32];
      round(p, s);
      int stage = 0, parity = 0;  // of the values that p is for
#pragma unroll 1
      for (int i = 1; i < part_.count; ++i) {
        const int next = stage + 1 == Tile::kStages ? 0 : stage + 1, next_parity = next == 0 ? parity ^ 1 : parity;
        shared_.k_full[next].wait(next_parity);
        take_turn();
        begin_products();
        multiply_keys(s, next);
        shared_.v_full[stage].wait(parity);
        begin_products();
        add_values(p, stage);
        end_turn();
        products_left<1>();
        seen(s);
        shared_.k_empty[next].arrive();
        hide(s, part_.from + i);
        make_probabilities(s, shrink);
        products_left<0>();
        seen(o_);
        shared_.v_empty[stage].arrive();
#pragma unroll
        for (int x = 0; x < Tile::kWidth / 2; ++x) o_[x] *= shrink[x % 4 / 2];
        round(p, s);
        stage = next, parity = next_parity;
      }
      shared_.v_full[stage].wait(parity);
      take_turn();
      begin_products();
      add_values(p, stage);
      if (w_ != Tile::kGroups - 1) end_turn();  // who is last grants nothing
      products_left<0>();
      seen(o_);
    }
    write();
  }

 private:
  static constexpr int kWidth = Tile::kWidth;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ int row(int half) const {
    return first_query_ + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane() / 4 + half * 8;
  }
  __device__ void take_turn() const { if (Tile::kTurns) meet(kTurn + w_, 256); }
  __device__ void end_turn() const { if (Tile::kTurns) pass(kTurn + (w_ + 1 == Tile::kGroups ? 0 : w_ + 1), 256); }

  __device__ void multiply_keys(float (&s)[64], int stage) const {
    const Operand k = k_ + stage * Tile::kKeyPanel * Tile::kPanels;
#pragma unroll
    for (int x = 0; x < kWidth / 16; ++x)
      multiply<kAlong>(s, q_ + (x / 4 * Tile::kQueryPanel + x % 4 * 32), k + (x / 4 * Tile::kKeyPanel + x % 4 * 32),
                       x > 0);
    commit_products();
  }
  __device__ void add_values(const std::uint32_t* p, int stage) {
    const Operand v = v_ + stage * Tile::kKeyPanel * Tile::kPanels;
#pragma unroll
    for (int x = 0; x < Tile::kKeys / 16; ++x) multiply<kAcross>(o_, p + 4 * x, v + x * 16 * 128, true);
    commit_products();
  }
  __device__ static void round(std::uint32_t* p, const float (&s)[64]) {
#pragma unroll
    for (int x = 0; x < 32; ++x) p[x] = pack(s[2 * x], s[2 * x + 1]);
  }

  // Keys beyond the last, after a query, or before its document. Most tiles have none.
  __device__ void hide(float (&s)[64], int tile) const {
    const int first = tile * Tile::kKeys, end = first + Tile::kKeys;
    if (end <= call_.sight.seen(first_query_ + 1) && first >= all_from_) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int from = first_[half] - first - lane() % 4 * 2, to = seen_[half] - first - lane() % 4 * 2;
#pragma unroll
      for (int x = 0; x < 64; ++x)
        if (x % 4 / 2 == half && (x / 4 * 8 + x % 2 < from || x / 4 * 8 + x % 2 >= to)) s[x] = -INFINITY;
    }
  }

  // exp(scale (s - top)), and what the sums so far are to be multiplied by.
  __device__ void make_probabilities(float (&s)[64], float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = top_[half];
#pragma unroll
      for (int x = 0; x < 64; ++x)
        if (x % 4 / 2 == half) top = fmaxf(top, s[x]);
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      // A query that has seen nothing yet has no top: its powers are to be 0.
      const float level = top == -INFINITY ? 0.0f : top * call_.scale_log2;
      shrink[half] = exp2_of(__fmaf_rn(top_[half], call_.scale_log2, -level));
      top_[half] = top;
      float sum = 0;
#pragma unroll
      for (int x = 0; x < 64; ++x)
        if (x % 4 / 2 == half) {
          s[x] = exp2_of(__fmaf_rn(s[x], call_.scale_log2, -level));
          sum += s[x];
        }
      total_[half] = __fmaf_rn(total_[half], shrink[half], sum);
    }
  }

  __device__ void write() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = total_[half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int query = row(half);
      if (query >= call_.sight.queries) continue;
      const float inverse = top_[half] == -INFINITY && total == 0 ? 0.0f : 1 / total;
      __nv_bfloat16* const to =
          call_.o + part_.sample * call_.of_o.sample + query * call_.of_o.token + part_.head * call_.of_o.head;
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j)
        *reinterpret_cast<std::uint32_t*>(to + 8 * j + lane() % 4 * 2) =
            pack(o_[4 * j + 2 * half] * inverse, o_[4 * j + 2 * half + 1] * inverse);
      if (lane() % 4 == 0)
        call_.lse[(static_cast<std::size_t>(part_.sample) * call_.heads + part_.head) * call_.sight.queries + query] =
            top_[half] * call_.scale + logf(total);
    }
  }

  static constexpr int kTurn = 1;  // the first of the numbered barriers

  const ForwardCall& call_;
  typename Tile::Shared& shared_;
  const ForwardPart& part_;
  const int w_, first_query_;
  const Operand q_, k_, v_;
  int all_from_;  // the first key that all of the group's queries see, as far as their documents go
  int first_[2], seen_[2];
  float top_[2] = {-INFINITY, -INFINITY}, total_[2] = {};
  float o_[kWidth / 2] = {};
};

// Registers of a thread, by what its warp group does, and what a thread could have if all had as many.
template <int kGroups>
struct ForwardRegisters {
  static_assert(kGroups == 2 || kGroups == 3);
  static constexpr int kFeeding = kGroups == 2 ? 24 : 32, kComputing = kGroups == 2 ? 240 : 160;
  static constexpr int kEven = kGroups == 2 ? 168 : 128;
  static_assert(kFeeding + kGroups * kComputing <= (kGroups + 1) * kEven);
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) forward_tiles(const __grid_constant__ ForwardCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  if (threadIdx.x == 0) shared.start();
  __syncthreads();
  const ForwardPart part = forward_part<Tile>(call, static_cast<int>(blockIdx.x));
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // known to be a warp's
  if (group == 0) {
    give_registers<ForwardRegisters<Tile::kGroups>::kFeeding>();
    if (threadIdx.x == 0) bring_keys<Tile>(call, shared, part);
  } else {
    take_registers<ForwardRegisters<Tile::kGroups>::kComputing>();
    ForwardComputer<Tile>(call, shared, part, group - 1).run();
  }
#endif
}

}  // namespace lockstep::cuda::hopper
