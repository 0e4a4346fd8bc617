// The computing warp groups of Hopper's attention backward.
//
// A group holds 64 keys against the queries of a tile, so scores are transposed: rows are keys, columns queries. Of
// each tile it makes s = k qᵀ and dp = v d_oᵀ, in registers p = exp(scale s - lse) and ds = p (dp - delta), rounded to
// bf16, and from these dv += p d_o and dk += ds q. dq = dsᵀ k needs the ds of both groups, which meet in shared memory;
// it is made one tile late, when the other group's half has long been there. So the groups need not march in step: they
// take turns at starting products, and one computes exponentials while the tensor cores work for the other.
#pragma once
#include <cmath>

#include "kernels/cuda/attention/hopper_attention_tiles.cuh"
#include "kernels/cuda/attention/hopper_products.cuh"

namespace lockstep::cuda::hopper {

template <class Tile>
class Computer {
 public:
  __device__ Computer(const BackwardCall& call, typename Tile::Shared& shared, const Part& part, int w)
      : call_(call),
        shared_(shared),
        part_(part),
        w_(w),
        k_rows_(Operand::at(shared_address(shared.k) + w * 64 * 128)),
        v_rows_(Operand::at(shared_address(shared.v) + w * 64 * 128)),
        k_columns_(Operand::at(shared_address(shared.k) + (Tile::kDqByColumns ? w * Tile::kKeyPanel : 0))),
        q_(Operand::at(shared_address(shared.q), Tile::kQueryPanel)),
        d_o_(Operand::at(shared_address(shared.d_o), Tile::kQueryPanel)),
        ds_rows_(Operand::at(shared_address(shared.ds) + (Tile::kDqByColumns ? 0 : w * 64 * 128))) {}

  __device__ void run() {
    if (part_.count > 0) process_tiles();
    write(call_.dk, call_.of_dk, dk_, call_.scale);
    write(call_.dv, call_.of_dv, dv_, 1);
  }

 private:
  static constexpr int kQueries = Tile::kQueries, kWidth = Tile::kWidth;

  __device__ void process_tiles() {
    shared_.keys_full.wait(0);
    if (w_ == 1) end_turn();  // the first is group 0's
    Walk walk(part_);
    int stage = 0, round = 0;  // of q
    for (unsigned i = 0; i < part_.count; ++i, walk.next(call_)) {
      const unsigned b = i % 2, before = b ^ 1;
      const Operand q = q_ + stage * sizeof shared_.q[0], d_o = d_o_ + b * sizeof shared_.d_o[0];
      shared_.q_full[stage].wait(round);
      begin_products();
      multiply_rows(s_, k_rows_, q);
      shared_.do_full[b].wait(i / 2 % 2);
      begin_products();
      multiply_rows(dp_, v_rows_, d_o);
      if (i > 0) end_turn();

      products_left<1>();
      seen(s_);
      hide(walk.tile, shared_.first[stage]);
      make_probabilities(shared_.lse[stage]);
      products_left<0>();
      seen(dp_);
      shared_.ds_empty[b].wait(i / 2 % 2 ^ 1);
      std::uint32_t p[kQueries / 4], ds[kQueries / 4];
      make_gradients(p, ds, shared_.delta[b], ds_place(b));
      show_shared_writes();

      take_turn();
      float dq[32];
      begin_products();
      add_columns(dv_, p, d_o);
      multiply_queries(dq, before);  // at the first tile of no one's, and not used
      add_columns(dk_, ds, q);
      products_left<1>();
      seen(dq);
      if (i > 0) {
        shared_.ds_empty[before].arrive();
        hand_over(dq);
      }
      products_left<0>();
      seen(dv_);
      seen(dk_);
      shared_.q_empty[stage].arrive();
      shared_.do_empty[b].arrive();
      if (++stage == Tile::kQStages) stage = 0, round ^= 1;
    }
    end_turn();
    if (w_ == 0) take_turn();  // for group 1's last gradients; it had those of group 0 in its last turn

    float dq[32];
    const unsigned last = part_.count - 1;
    begin_products();
    multiply_queries(dq, last % 2);
    products_left<0>();
    seen(dq);
    hand_over(dq);
  }

  __device__ static int warp() { return static_cast<int>(threadIdx.x) % 128 / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // A turn begins before the products that need the other group's gradients of scores, those of the tile before, and
  // ends after the products that the next exponentials need. Who has the turn knows that the other group has ended one,
  // and so that its gradients of that tile are in shared memory.
  __device__ void take_turn() const { meet(kTurn + w_, 128 * Tile::kGroups); }
  __device__ void end_turn() const { pass(kTurn + (w_ ^ 1), 128 * Tile::kGroups); }

  // Products over the head's width, over the tile's queries, and over the block's keys.
  __device__ static void multiply_rows(float (&d)[kQueries / 2], Operand keys, Operand queries) {
#pragma unroll
    for (int x = 0; x < kWidth / 16; ++x)
      multiply<kAlong>(d, keys + (x / 4 * Tile::kKeyPanel + x % 4 * 32),
                       queries + (x / 4 * Tile::kQueryPanel + x % 4 * 32), x > 0);
    commit_products();
  }
  __device__ static void add_columns(float (&d)[kWidth / 2], const std::uint32_t* weights, Operand queries) {
#pragma unroll
    for (int x = 0; x < kQueries / 16; ++x) multiply<kAcross>(d, weights + 4 * x, queries + x * 16 * 128, true);
    commit_products();
  }
  __device__ void multiply_queries(float (&d)[32], unsigned b) const {
    const Operand ds = ds_rows_ + b * Tile::kScores;
#pragma unroll
    for (int x = 0; x < Tile::kKeys / 16; ++x)
      multiply<kAcross>(d, ds + (x / 4 * Tile::kQueryPanel + x % 4 * 32), k_columns_ + x * 16 * 128, x > 0);
    commit_products();
  }

  // Keys that come after a query, before its document, or after all keys.
  __device__ void hide(int tile, const int* first) {
    const Sight& sight = call_.sight;
    const int first_key = part_.n * Tile::kKeys, key = first_key + w_ * 64 + warp() * 16 + lane() / 4;
    if (first_key + Tile::kKeys > sight.seen(tile * kQueries + 1)) {
      // On the diagonal each column hides one key more than the one before.
      const int ahead = sight.causal ? key - sight.shift() - tile * kQueries - lane() % 4 * 2 : -kQueries;
#pragma unroll
      for (int x = 0; x < kQueries / 2; ++x)
        if (ahead + x % 4 / 2 * 8 > x / 4 * 8 + x % 2 || key + x % 4 / 2 * 8 >= sight.keys) s_[x] = -INFINITY;
    }
    if (call_.first && first[kQueries - 1] > first_key) {
      const auto* of_lane = reinterpret_cast<const int4*>(first) + lane() % 4;
#pragma unroll
      for (int j = 0; j < kQueries / 16; ++j) {
        const int4 f = of_lane[4 * j];
        const int of_column[8] = {f.x, f.y, f.x, f.y, f.z, f.w, f.z, f.w};
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (key + e % 4 / 2 * 8 < of_column[e]) s_[8 * j + e] = -INFINITY;
      }
    }
  }

  __device__ void make_probabilities(const float* lse) {
    const auto* of_lane = reinterpret_cast<const float4*>(lse) + lane() % 4;
#pragma unroll
    for (int j = 0; j < kQueries / 16; ++j) {
      const float4 l = of_lane[4 * j];
      const float of_column[8] = {l.x, l.y, l.x, l.y, l.z, l.w, l.z, l.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) s_[8 * j + e] = exp2_of(__fmaf_rn(s_[8 * j + e], call_.scale_log2, -of_column[e]));
    }
  }

  // Both rounded, as factors of products; ds also into shared memory, a row a query.
  __device__ void make_gradients(std::uint32_t* p, std::uint32_t* ds, const float* delta, std::uint32_t to) {
    const auto* of_lane = reinterpret_cast<const float4*>(delta) + lane() % 4;
#pragma unroll
    for (int j = 0; j < kQueries / 16; ++j) {
      const float4 l = of_lane[4 * j];
      const float of_column[8] = {l.x, l.y, l.x, l.y, l.z, l.w, l.z, l.w};
#pragma unroll
      for (int e = 0; e < 8; e += 2) {
        const float *s = s_ + 8 * j + e, *dp = dp_ + 8 * j + e;
        ds[4 * j + e / 2] = pack(s[0] * (dp[0] - of_column[e]), s[1] * (dp[1] - of_column[e + 1]));
        p[4 * j + e / 2] = pack(s[0], s[1]);
      }
      store_transposed(to + j * 16 * 128, ds + 4 * j);
    }
  }

  // Where this lane's row of a transposed block goes: row = query, in it 16 bytes = 8 keys, swizzled.
  __device__ std::uint32_t ds_place(unsigned b) const {
    const int row = lane() / 16 * 8 + lane() % 8, eight = 2 * warp() + lane() / 8 % 2;
    return shared_address(shared_.ds[b]) + w_ * Tile::kQueryPanel + row * 128 + (eight ^ row % 8) * 16;
  }

  __device__ void hand_over(const float (&dq)[32]) {
    meet(kDqEmpty + w_, kDqThreads);
    auto* to = reinterpret_cast<float4*>(shared_.dq[w_]) + threadIdx.x % 128;
#pragma unroll
    for (int j = 0; j < 8; ++j) to[j * 128] = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    show_shared_writes();
    pass(kDqFull + w_, kDqThreads);
  }

  // Once a block, so it need not be the fastest.
  __device__ void write(__nv_bfloat16* to, const Strides& strides, const float (&sums)[kWidth / 2], float scale) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = part_.n * Tile::kKeys + w_ * 64 + warp() * 16 + lane() / 4 + half * 8;
      if (token >= call_.sight.keys) continue;
      __nv_bfloat16* const row =
          to + part_.sample * strides.sample + token * strides.token + part_.key_head * strides.head;
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j)
        *reinterpret_cast<std::uint32_t*>(row + 8 * j + lane() % 4 * 2) =
            pack(sums[4 * j + 2 * half] * scale, sums[4 * j + 2 * half + 1] * scale);
    }
  }

  const BackwardCall& call_;
  typename Tile::Shared& shared_;
  const Part& part_;
  const int w_;
  // Of k: the group's rows, and all rows by the columns that it makes of dq.
  const Operand k_rows_, v_rows_, k_columns_, q_, d_o_, ds_rows_;
  float s_[kQueries / 2], dp_[kQueries / 2];
  float dk_[kWidth / 2] = {}, dv_[kWidth / 2] = {};
};

}  // namespace lockstep::cuda::hopper
