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
      : a_(a), T_(a.q.dim(1)), H_(a.q.dim(2)), S_(a.k.dim(1)), tile_(a) {
    typename Tile::Scratch room{static_cast<T*>(scratch)};
    for (T** p : {&q_, &do_, &q_t_, &do_t_}) *p = room.take(BQ * tile_.padded);
    for (T** p : {&k_, &v_, &dk_, &dv_}) *p = room.take(BK * tile_.padded);
    for (T** p : {&p_t_, &ds_t_, &factor_}) *p = room.take(BK * BQ);
    dq_ = room.take(BQ * tile_.padded);
  }

  void run(std::int64_t b, std::int64_t kv_head) {
    tile_ = tile_.of_sample(a_, b);
    const std::int64_t group = H_ / a_.k.dim(2), P = tile_.padded;
    if constexpr (kOnePass)
      for (std::int64_t h = kv_head * group; tile_.starts && h < (kv_head + 1) * group; ++h) clear_blind(b, h);
    for (std::int64_t k0 = 0; k0 < S_; k0 += BK) {
      const std::int64_t keys = load_keys(b, kv_head, k0, S_);
      std::fill_n(dk_, BK * P, T(0));
      std::fill_n(dv_, BK * P, T(0));
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        // Queries that see none of these keys are passed over.
        const std::int64_t first = std::max<std::int64_t>(0, k0 - tile_.shift) / BQ * BQ;
        for (std::int64_t q0 = first; q0 < T_; q0 += BQ) {
          if (tile_.first_seen(q0) >= k0 + keys) break;  // their documents begin later, as do those of all after them
          load_queries(b, h, q0);
          probabilities(b, h, q0, k0, keys);
          add_key_gradient(dv_, p_t_, do_at_, q0, k0, keys);
          add_key_gradient(dk_, ds_t_, q_at_, q0, k0, keys);
          if constexpr (kOnePass) {
            const bool started = k0 > tile_.keys_from(q0);
            if (started) read_dq(b, h, q0);
            add_query_gradient(q0, k0, keys, started);
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
          const std::int64_t seen = tile_.keys_seen(q0 + queries_ - 1), from = tile_.keys_from(q0);
          if (from >= seen) std::fill_n(dq_, BQ * P, T(0));
          for (std::int64_t k0 = from; k0 < seen; k0 += BK) {
            const std::int64_t keys = load_keys(b, kv_head, k0, seen);
            probabilities(b, h, q0, k0, keys);
            add_query_gradient(q0, k0, keys, k0 > from);
          }
          write(a_.dq, b, h, q0, queries_, dq_);
        }
    }
  }

 private:
  // Queries that see no key have no gradient, and no tile of keys writes it.
  void clear_blind(std::int64_t b, std::int64_t h) {
    std::fill_n(dq_, BQ * tile_.padded, T(0));
    for (std::int64_t q0 = 0; q0 < T_; q0 += BQ)
      if (tile_.first_seen(q0) >= S_) write(a_.dq, b, h, q0, std::min(BQ, T_ - q0), dq_);
  }

  std::int64_t load_keys(std::int64_t b, std::int64_t kv_head, std::int64_t k0, std::int64_t end) {
    const std::int64_t keys = std::min(BK, end - k0);
    k_at_ = tile_rows(k_, a_.k, b, kv_head, k0, keys, keys);
    v_at_ = tile_rows(v_, a_.v, b, kv_head, k0, keys, keys);
    return keys;
  }

  TileRows<T> tile_rows(T* room, const ConstTensor& x, std::int64_t b, std::int64_t h, std::int64_t first,
                        std::int64_t count, std::int64_t all) const {
    return rows_in_place(room, tile_.padded, head_base<S>(x, b, h) + first * x.stride(1), x.stride(1), count, all,
                         tile_.D);
  }

  // The tile's queries and output gradients both ways round, their log-sum-exp, and delta_i = Σ_d do_id · o_id.
  void load_queries(std::int64_t b, std::int64_t h, std::int64_t q0) {
    const std::int64_t P = tile_.padded, D = tile_.D;
    queries_ = std::min(BQ, T_ - q0);
    q_at_ = tile_rows(q_, a_.q, b, h, q0, queries_, BQ);
    do_at_ = tile_rows(do_, a_.d_o, b, h, q0, queries_, BQ);
    transpose(q_t_, BQ, q_at_.data, q_at_.stride, BQ, P);
    transpose(do_t_, BQ, do_at_.data, do_at_.stride, BQ, P);
    const S* o = head_base<S>(a_.o, b, h) + q0 * a_.o.stride(1);
    const T* lse = a_.lse.template data<T>() + (b * H_ + h) * T_ + q0;
    for (std::int64_t i = 0; i < BQ; ++i) {
      V dots{};
      if (i < queries_)
        for_vectors<T>(D, [&](std::int64_t d, auto load, auto) {
          dots = fma(load(o + i * a_.o.stride(1) + d), load(do_at_.data + i * do_at_.stride + d), dots);
        });
      delta_[i] = sum<T>(dots);
      const bool sees = i < queries_ && !(tile_.starts && lse[i] == -std::numeric_limits<T>::infinity());
      lse_[i] = sees ? lse[i] : T(0);
    }
  }

  // p_t: what multiplies v (after dropout); ds_t: the gradient of the scores, times scale.
  void probabilities(std::int64_t b, std::int64_t h, std::int64_t q0, std::int64_t k0, std::int64_t keys) {
    const bool drops = a_.dropout.probability > 0;
    tile_.products(p_t_, k_at_, q_t_, q0, k0, keys);
    tile_.products(ds_t_, v_at_, do_t_, q0, k0, keys);
    if (drops) tile_.keep_factors(factor_, b, h, q0, queries_, k0, keys);
    tile_.each_score(p_t_, q0, k0, keys, [&](std::int64_t j, int v, V score) {
      const std::int64_t i = v * W;
      T *p = p_t_ + j * BQ + i, *ds = ds_t_ + j * BQ + i;
      const V probability = exp(score - load(lse_ + i));
      const V keep = drops ? load(factor_ + j * BQ + i) : broadcast(T(1));
      const V d = load(ds) * keep - load(delta_ + i);
      store(ds, probability * d * static_cast<T>(tile_.scale));
      store(p, probability * keep);
    });
  }

  // to[j] += Σ_i weights[j][i] · x_i
  void add_key_gradient(T* to, const T* weights, TileRows<T> x, std::int64_t q0, std::int64_t k0,
                        std::int64_t keys) const {
    const std::int64_t P = tile_.padded;
    tile_.each_group(q0, k0, keys, [&](std::int64_t j, std::int64_t count, std::int64_t first) {
      TileProduct<T>{to + j * P, P,   weights + j * BQ + first, BQ, 1, x.data + first * x.stride, x.stride, count,
                     BQ - first, true}
          .run(P / W);
    });
  }

  // dq[i] (+)= Σ_j ds_t[j][i] · k_j
  void add_query_gradient(std::int64_t q0, std::int64_t k0, std::int64_t keys, bool started) const {
    const std::int64_t P = tile_.padded, step = tile_.masked(q0, k0, keys) ? W : BQ;
    for (std::int64_t i = 0; i < queries_; i += step) {
      const std::int64_t count = std::min(step, queries_ - i), seen = tile_.keys_of(q0, i + step - W, k0, keys);
      if (seen > 0)
        TileProduct<T>{dq_ + i * P, P, ds_t_ + i, 1, BQ, k_at_.data, k_at_.stride, count, seen, started}.run(P / W);
      else if (!started)
        std::fill_n(dq_ + i * P, count * P, T(0));
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
  TileRows<T> q_at_, do_at_, k_at_, v_at_;  // the tiles at hand: in their tensors, or packed
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
