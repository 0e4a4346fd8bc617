// Attention's backward: probabilities are recomputed tile by tile from the log-sum-exp.
//
// A piece of work is one key/value head of one batch entry, so that its dk and dv have one writer. With the compute
// type as storage, dq accumulates where it lives, in the same pass. 16-bit storage cannot hold partial sums, so dq gets
// a second pass of its own, with queries outside and keys inside: the same sums in the same order.
#include <algorithm>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {

template <class S>
class Backward {
  using T = Compute<S>;
  using Tile = AttentionTile<T>;
  using V = Vec<T>;
  static constexpr int W = kLanes<T>;
  static constexpr std::int64_t BQ = Tile::kQueries, BK = Tile::kKeys;
  static constexpr bool kOnePass = std::is_same_v<S, T>;

 public:
  Backward(const AttentionBackwardArgs& a, void* scratch)
      : a_(a), T_(a.q.dim(1)), H_(a.q.dim(2)), S_(a.k.dim(1)), tile_{a.q.dim(3), round_up(a.q.dim(3), W),
                                                                     a.scale,    a.causal,
                                                                     S_ - T_,    a.dropout} {
    typename Tile::Scratch room{static_cast<T*>(scratch)};
    for (T** p : {&q_, &do_, &q_t_, &do_t_}) *p = room.take(BQ * tile_.padded);
    for (T** p : {&k_, &v_, &dk_, &dv_}) *p = room.take(BK * tile_.padded);
    for (T** p : {&p_t_, &ds_t_, &factor_}) *p = room.take(BK * BQ);
    dq_ = room.take(BQ * tile_.padded);
  }

  void run(std::int64_t b, std::int64_t kv_head) {
    const std::int64_t group = H_ / a_.k.dim(2), P = tile_.padded;
    for (std::int64_t k0 = 0; k0 < S_; k0 += BK) {
      const std::int64_t keys = load_keys(b, kv_head, k0, S_);
      std::fill_n(dk_, BK * P, T(0));
      std::fill_n(dv_, BK * P, T(0));
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        // Queries that see none of these keys are passed over.
        const std::int64_t first = a_.causal ? std::max<std::int64_t>(0, k0 - tile_.shift) / BQ * BQ : 0;
        for (std::int64_t q0 = first; q0 < T_; q0 += BQ) {
          load_queries(b, h, q0);
          probabilities(b, h, q0, k0, keys);
          TileProduct<T>{dv_, P, p_t_, BQ, 1, do_, P, keys, BQ, true}.run(P / W);
          TileProduct<T>{dk_, P, ds_t_, BQ, 1, q_, P, keys, BQ, true}.run(P / W);
          if constexpr (kOnePass) {
            const bool started = k0 > 0;
            if (started) read_dq(b, h, q0);
            TileProduct<T>{dq_, P, ds_t_, 1, BQ, k_, P, queries_, keys, started}.run(P / W);
            write(a_.dq, b, h, q0, queries_, dq_);
          }
        }
      }
      write(a_.dk, b, kv_head, k0, keys, dk_);
      write(a_.dv, b, kv_head, k0, keys, dv_);
    }
    if constexpr (!kOnePass) {
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
        for (std::int64_t q0 = 0; q0 < T_; q0 += BQ) {
          load_queries(b, h, q0);
          const std::int64_t seen = tile_.keys_seen(q0 + queries_ - 1, S_);
          for (std::int64_t k0 = 0; k0 < seen; k0 += BK) {
            const std::int64_t keys = load_keys(b, kv_head, k0, seen);
            probabilities(b, h, q0, k0, keys);
            TileProduct<T>{dq_, P, ds_t_, 1, BQ, k_, P, queries_, keys, k0 > 0}.run(P / W);
          }
          write(a_.dq, b, h, q0, queries_, dq_);
        }
    }
  }

 private:
  std::int64_t load_keys(std::int64_t b, std::int64_t kv_head, std::int64_t k0, std::int64_t end) {
    const std::int64_t keys = std::min(BK, end - k0);
    pack(k_, tile_.padded, head_base<S>(a_.k, b, kv_head) + k0 * a_.k.stride(1), a_.k.stride(1), keys, keys, tile_.D);
    pack(v_, tile_.padded, head_base<S>(a_.v, b, kv_head) + k0 * a_.v.stride(1), a_.v.stride(1), keys, keys, tile_.D);
    return keys;
  }

  // The tile's queries and output gradients both ways round, their log-sum-exp, and delta_i = Σ_d do_id · o_id.
  void load_queries(std::int64_t b, std::int64_t h, std::int64_t q0) {
    const std::int64_t P = tile_.padded, D = tile_.D;
    queries_ = std::min(BQ, T_ - q0);
    pack(q_, P, head_base<S>(a_.q, b, h) + q0 * a_.q.stride(1), a_.q.stride(1), queries_, BQ, D);
    pack(do_, P, head_base<S>(a_.d_o, b, h) + q0 * a_.d_o.stride(1), a_.d_o.stride(1), queries_, BQ, D);
    transpose(q_t_, BQ, q_, P, BQ, P);
    transpose(do_t_, BQ, do_, P, BQ, P);
    const S* o = head_base<S>(a_.o, b, h) + q0 * a_.o.stride(1);
    const T* lse = a_.lse.template data<T>() + (b * H_ + h) * T_ + q0;
    for (std::int64_t i = 0; i < BQ; ++i) {
      V dots{};
      if (i < queries_)
        for_vectors<T>(D, [&](std::int64_t d, auto load, auto) {
          dots = fma(load(o + i * a_.o.stride(1) + d), load(do_ + i * P + d), dots);
        });
      delta_[i] = sum<T>(dots);
      lse_[i] = i < queries_ ? lse[i] : T(0);
    }
  }

  // p_t: what multiplies v (after dropout); ds_t: the gradient of the scores, times scale.
  void probabilities(std::int64_t b, std::int64_t h, std::int64_t q0, std::int64_t k0, std::int64_t keys) {
    const bool drops = a_.dropout.probability > 0;
    tile_.scores(p_t_, q_t_, k_, q0, k0, keys);
    TileProduct<T>{ds_t_, BQ, v_, tile_.padded, 1, do_t_, BQ, keys, tile_.D, false}.run(4);
    if (drops) tile_.keep_factors(factor_, b, h, q0, queries_, k0, keys);
    for (std::int64_t j = 0; j < keys; ++j)
      for (std::int64_t i = 0; i < BQ; i += W) {
        T *p = p_t_ + j * BQ + i, *ds = ds_t_ + j * BQ + i;
        const V probability = exp(load(p) - load(lse_ + i));
        const V keep = drops ? load(factor_ + j * BQ + i) : broadcast(T(1));
        const V d = load(ds) * keep - load(delta_ + i);
        store(ds, probability * d * static_cast<T>(tile_.scale));
        store(p, probability * keep);
      }
  }

  void read_dq(std::int64_t b, std::int64_t h, std::int64_t q0) {
    pack(dq_, tile_.padded, head_base<S>(a_.dq, b, h) + q0 * a_.dq.stride(1), a_.dq.stride(1), queries_, queries_,
         tile_.D);
  }

  void write(const Tensor& to, std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t count,
             const T* from) const {
    S* out = head_base<S>(to, b, h) + first * to.stride(1);
    for (std::int64_t i = 0; i < count; ++i)
      for_vectors<T>(tile_.D, [&](std::int64_t d, auto load, auto store) {
        store(out + i * to.stride(1) + d, load(from + i * tile_.padded + d));
      });
  }

  const AttentionBackwardArgs& a_;
  std::int64_t T_, H_, S_, queries_ = 0;
  Tile tile_;
  T *q_, *do_, *q_t_, *do_t_, *k_, *v_, *dk_, *dv_, *p_t_, *ds_t_, *factor_, *dq_;
  alignas(64) T lse_[BQ];
  alignas(64) T delta_[BQ];
};

}  // namespace

void attention_backward(const AttentionBackwardArgs& a, lockstep::Stream& stream) {
  Stream& on = Stream::of(stream);
  with_float(a.q.dtype(), [&](auto s) {
    on.workers().each(a.q.dim(0) * a.k.dim(2), [&](std::int64_t item, int worker) {
      Backward<typename decltype(s)::Type>(a, on.scratch(worker)).run(item / a.k.dim(2), item % a.k.dim(2));
    });
  });
}

}  // namespace lockstep::cpu
