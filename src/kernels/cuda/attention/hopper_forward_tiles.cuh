// The tiles of Hopper's attention forward: which a block works on, the warp that brings them, and the warp groups that
// compute.
//
// There are as many blocks as multiprocessors, and each works on one tile of queries of one head after another, 64 for
// each computing warp group, so that the next tile is on its way while the last is written. It meets them with the
// tiles of keys that they see, ascending. Scores, probabilities and the output's sums stay in registers. While the
// tensor cores make the next scores and add the last probabilities' products, the group turns scores into
// probabilities; and groups take turns at starting products, so that one computes exponentials while the tensor cores
// work for another.
//
// Tiles are dealt to blocks like cards, those with most keys first, and every other round backwards: no block has much
// more to do than another.
#pragma once
#include <cmath>
#include <cstddef>

#include "kernels/cuda/attention/hopper_copies.cuh"
#include "kernels/cuda/attention/hopper_products.cuh"
#include "kernels/cuda/attention/hopper_sight.cuh"

namespace lockstep::cuda::hopper {

// What a tile of queries sees: `count` tiles of keys, the first from key `from` on. That is where a document begins, so
// its keys fill as few tiles as if it were alone.
struct ForwardPart {
  int sample, tile, from, count;
};
// With documents, tiles are sorted by what they have to do where there are at most this many (of all samples).
inline constexpr int kSorted = 512;

// Rows of 64 elements (128 bytes) are what copies bring and products read: a head of 128 is two such panels.
template <int kHeadWidth, int kComputingGroups>
struct ForwardTile {
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
    ForwardPart parts[kSorted], sorted[kSorted];  // with documents
    Barrier q_full, q_empty, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];

    // By one thread, before the block meets.
    __device__ void start() {
      q_full.start(1), q_empty.start(128 * kGroups);
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
  int samples, tiles, heads, group;  // tiles of queries
  float scale, scale_log2;

  __device__ bool sorted() const { return sight.starts && samples * tiles <= kSorted; }
};

template <class Tile>
__device__ ForwardPart forward_part(const ForwardCall& call, int sample, int tile) {
  const int first = tile * Tile::kQueries, seen = call.sight.seen(first + Tile::kQueries);
  const int from = call.sight.first_seen(sample, first);
  return {sample, tile, from, max((seen - from + Tile::kKeys - 1) / Tile::kKeys, 0)};
}

// By all threads of the block; the next __syncthreads() shows it.
template <class Tile>
__device__ void sort_parts(const ForwardCall& call, typename Tile::Shared& shared) {
  if (!call.sorted()) return;
  const int all = call.samples * call.tiles;
  for (int i = static_cast<int>(threadIdx.x); i < all; i += Tile::kThreads)
    shared.parts[i] = forward_part<Tile>(call, i / call.tiles, i % call.tiles);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < all; i += Tile::kThreads) {
    const int own = shared.parts[i].count;
    int before = 0;
    for (int j = 0; j < all; ++j) before += shared.parts[j].count > own || (shared.parts[j].count == own && j < i);
    shared.sorted[before] = shared.parts[i];
  }
}

// A block's work, one part of one head after another. All heads of a part before the next, so that blocks that run
// together read the same keys. Without documents the last tile of queries comes first: under the causal mask it has
// most to do.
template <class Tile>
struct Deal {
  int round = 0, item = static_cast<int>(blockIdx.x);

  __device__ bool over(const ForwardCall& call) const { return item >= call.samples * call.tiles * call.heads; }
  __device__ int head(const ForwardCall& call) const { return item % call.heads; }
  __device__ ForwardPart part(const ForwardCall& call, const typename Tile::Shared& shared) const {
    const int at = item / call.heads;
    if (call.sorted()) return shared.sorted[at];
    return forward_part<Tile>(call, at % call.samples, call.tiles - 1 - at / call.samples);
  }
  __device__ void next() {
    ++round;
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    item = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
  }
};

// By one thread.
template <class Tile>
__device__ void bring_keys(const ForwardCall& call, typename Tile::Shared& shared) {
  int stage = 0, round = 1, q_round = 1;
#pragma unroll 1
  for (Deal<Tile> deal; !deal.over(call); deal.next()) {
    const ForwardPart part = deal.part(call, shared);
    if (part.count == 0) continue;
    const int head = deal.head(call), key_head = head / call.group;
    shared.q_empty.wait(q_round);
    q_round ^= 1;
    shared.q_full.expect(sizeof shared.q);
    for (int p = 0; p < Tile::kPanels; ++p)
      copy_box(shared.q + p * Tile::kQueryPanel, call.q, {64 * p, part.tile * Tile::kQueries, head, part.sample},
               shared.q_full);
    const auto bring = [&](std::byte* to, const CUtensorMap& map, int i, Barrier& full) {
      full.expect(Tile::kKeyPanel * Tile::kPanels);
      for (int p = 0; p < Tile::kPanels; ++p)
        copy_box(to + p * Tile::kKeyPanel, map, {64 * p, part.from + i * Tile::kKeys, key_head, part.sample}, full);
    };
#pragma unroll 1
    for (int i = 0; i < part.count; ++i) {
      shared.k_empty[stage].wait(round);
      bring(shared.k[stage], call.k, i, shared.k_full[stage]);
      shared.v_empty[stage].wait(round);
      bring(shared.v[stage], call.v, i, shared.v_full[stage]);
      if (++stage == Tile::kStages) stage = 0, round ^= 1;
    }
  }
}

template <class Tile>
class ForwardComputer {
 public:
  __device__ ForwardComputer(const ForwardCall& call, typename Tile::Shared& shared, int w)
      : call_(call),
        shared_(shared),
        w_(w),
        q_(Operand::at(shared_address(shared.q) + w * 64 * 128)),
        k_(Operand::at(shared_address(shared.k))),
        v_(Operand::at(shared_address(shared.v), Tile::kKeyPanel)) {}

  __device__ void run() {
    if (w_ == Tile::kGroups - 1) end_turn();  // the first is group 0's
    int q_round = 0;
#pragma unroll 1
    for (Deal<Tile> deal; !deal.over(call_); deal.next()) {
      const ForwardPart part = deal.part(call_, shared_);
      begin(part);
      if (part.count > 0) {
        shared_.q_full.wait(q_round);
        q_round ^= 1;
        meet_keys(part);
      }
      write(part.sample, deal.head(call_));
    }
    if (w_ == 0) take_turn();  // who was last has ended one
  }

 private:
  static constexpr int kWidth = Tile::kWidth;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ int row(int half) const {
    return first_query_ + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane() / 4 + half * 8;
  }
  __device__ void take_turn() const { meet(kTurn + w_, 256); }
  __device__ void end_turn() const { pass(kTurn + (w_ + 1 == Tile::kGroups ? 0 : w_ + 1), 256); }

  __device__ void begin(const ForwardPart& part) {
    first_query_ = part.tile * Tile::kQueries + w_ * 64;
    all_from_ = call_.sight.first_seen(part.sample, first_query_ + 63);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      first_[half] = call_.sight.first_seen(part.sample, row(half));
      top_[half] = -INFINITY;
      total_[half] = 0;
    }
#pragma unroll
    for (float& x : o_) x = 0;
  }

  __device__ void meet_keys(const ForwardPart& part) {
    float s[64];
    shared_.k_full[stage_].wait(parity_);
    take_turn();
    begin_products();
    multiply_keys(s, stage_);
    end_turn();
    products_left<0>();
    seen(s);
    shared_.k_empty[stage_].arrive();
    if (part.count == 1) shared_.q_empty.arrive();
    hide(s, part.from);
    float shrink[2];
    make_probabilities(s, shrink);
    std::uint32_t p[32];
    round(p, s);
#pragma unroll 1
    for (int i = 1; i < part.count; ++i) {
      const int next = stage_ + 1 == Tile::kStages ? 0 : stage_ + 1, next_parity = next == 0 ? parity_ ^ 1 : parity_;
      shared_.k_full[next].wait(next_parity);
      take_turn();
      begin_products();
      multiply_keys(s, next);
      shared_.v_full[stage_].wait(parity_);
      begin_products();
      add_values(p, stage_);
      end_turn();
      products_left<1>();
      seen(s);
      shared_.k_empty[next].arrive();
      if (i + 1 == part.count) shared_.q_empty.arrive();
      hide(s, part.from + i * Tile::kKeys);
      make_probabilities(s, shrink);
      products_left<0>();
      seen(o_);
      shared_.v_empty[stage_].arrive();
#pragma unroll
      for (int x = 0; x < kWidth / 2; ++x) o_[x] *= shrink[x % 4 / 2];
      round(p, s);
      stage_ = next, parity_ = next_parity;
    }
    shared_.v_full[stage_].wait(parity_);
    take_turn();
    begin_products();
    add_values(p, stage_);
    end_turn();
    products_left<0>();
    seen(o_);
    shared_.v_empty[stage_].arrive();
    if (++stage_ == Tile::kStages) stage_ = 0, parity_ ^= 1;
  }

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

  // Keys after a query or beyond the last, and keys before its document. Most tiles have none.
  __device__ void hide(float (&s)[64], int first) const {
    const int column = first + lane() % 4 * 2;
    if (first + Tile::kKeys > call_.sight.seen(first_query_ + 1)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int end = call_.sight.seen(row(half) + 1) - column;
#pragma unroll
        for (int x = 0; x < 64; ++x)
          if (x % 4 / 2 == half && x / 4 * 8 + x % 2 >= end) s[x] = -INFINITY;
      }
    }
    if (first < all_from_) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int begin = first_[half] - column;
#pragma unroll
        for (int x = 0; x < 64; ++x)
          if (x % 4 / 2 == half && x / 4 * 8 + x % 2 < begin) s[x] = -INFINITY;
      }
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

  // Four neighbouring lanes hold a row, each two columns of every eight. They exchange words until each has the eight
  // columns of one store.
  __device__ void write(int sample, int head) {
    const bool odd = lane() % 2 == 1, high = lane() % 4 >= 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = total_[half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int query = row(half);
      const bool real = query < call_.sight.queries;
      const float inverse = top_[half] == -INFINITY && total == 0 ? 0.0f : 1 / total;
      __nv_bfloat16* const to =
          call_.o + sample * call_.of_o.sample + query * call_.of_o.token + head * call_.of_o.head + lane() % 4 * 8;
#pragma unroll
      for (int c = 0; c < kWidth / 32; ++c) {
        std::uint32_t word[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* const x = o_ + 4 * (4 * c + j) + 2 * half;
          word[j] = pack(x[0] * inverse, x[1] * inverse);
        }
        exchange(word[0], word[1], odd, 1);
        exchange(word[2], word[3], odd, 1);
        exchange(word[0], word[2], high, 2);
        exchange(word[1], word[3], high, 2);
        if (real) *reinterpret_cast<uint4*>(to + 32 * c) = make_uint4(word[0], word[1], word[2], word[3]);
      }
      if (real && lane() % 4 == 0)
        call_.lse[(static_cast<std::size_t>(sample) * call_.heads + head) * call_.sight.queries + query] =
            top_[half] * call_.scale + logf(total);
    }
  }
  // Half of a transposition: who is `second` of two lanes gives its first word for the other's second.
  __device__ static void exchange(std::uint32_t& a, std::uint32_t& b, bool second, int apart) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, second ? a : b, apart);
    (second ? a : b) = got;
  }

  static constexpr int kTurn = 1;  // the first of the numbered barriers

  const ForwardCall& call_;
  typename Tile::Shared& shared_;
  const int w_;
  const Operand q_, k_, v_;
  int stage_ = 0, parity_ = 0;  // of the next keys and values
  int first_query_;
  int all_from_;  // the first key that all of the group's queries see, as far as their documents go
  int first_[2];
  float top_[2], total_[2];
  float o_[kWidth / 2];
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
  sort_parts<Tile>(call, shared);
  __syncthreads();
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // known to be a warp's
  if (group == 0) {
    give_registers<ForwardRegisters<Tile::kGroups>::kFeeding>();
    if (threadIdx.x == 0) bring_keys<Tile>(call, shared);
  } else {
    take_registers<ForwardRegisters<Tile::kGroups>::kComputing>();
    ForwardComputer<Tile>(call, shared, group - 1).run();
  }
#endif
}

}  // namespace lockstep::cuda::hopper
