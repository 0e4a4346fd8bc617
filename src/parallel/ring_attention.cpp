#include "parallel/ring_attention.h"

#include "kernels/attention_merge.h"
#include "kernels/elementwise.h"
#include "kernels/heads.h"

namespace lockstep {

namespace {

// One half of a tensor: keys, or values.
template <class T>
T half(const T& both, std::int64_t which) {
  const std::int64_t each = both.elements() / 2;
  return both.slice(0, which * each, each);
}

}  // namespace

RingAttention::RingAttention(Communicator& ranks, const ContextSplit& split, bool overlap, const Sizes& sizes,
                             Memory& memory)
    : ranks_(ranks), split_(split), overlap_(overlap), sizes_(sizes) {
  LOCKSTEP_CHECK(ranks.size() == split.ring && ranks.rank() == split.ring_rank(), "rank {} of {} for share {} of {}",
                 ranks.rank(), ranks.size(), split.ring_rank(), split.ring);
  if (split.ring == 1) return;
  const std::int64_t share = 2 * sizes.B * split.share(sizes.T) * sizes.keys * sizes.width;
  shares_ = memory.allocate(2 * share * size_of(sizes.dtype), Tag::communication, "keys and values");
}

void RingAttention::Exchange::wait() {
  for (Communicator::Started* one : {&received, &sent}) {
    if (*one) (*one)->wait();
    one->reset();
  }
}

RingAttention::Exchange RingAttention::exchange(const ConstTensor& out, const Tensor& in) const {
  Exchange both{.sent = ranks_.send(out, (own() + 1) % ring()), .received = {}};
  both.received = ranks_.recv(in, (own() - 1 + ring()) % ring());
  if (!overlap_) both.wait();
  return both;
}

Tensor RingAttention::share(int turn, std::int64_t T) const {
  const std::int64_t elements = 2 * sizes_.B * split_.share(T) * sizes_.keys * sizes_.width;
  return view(shares_, sizes_.dtype, {elements}, turn % 2 * elements);
}

Shape RingAttention::half_of(const Tensor& share) const {
  const std::int64_t each = 2 * sizes_.B * sizes_.keys * sizes_.width;
  return {sizes_.B, share.elements() / each, sizes_.keys, sizes_.width};
}

Tensor RingAttention::keys_of(const Tensor& share) const { return half(share, 0).reshape(half_of(share)); }
Tensor RingAttention::values_of(const Tensor& share) const { return half(share, 1).reshape(half_of(share)); }

RingAttention::Sees RingAttention::sees(int c, int of_share, int k) const {
  const std::int64_t query = split_.segment_begins(sizes_.T, own(), c);
  const std::int64_t key = split_.segment_begins(sizes_.T, of_share, k);
  return key < query ? Sees::all : key == query ? Sees::itself : Sees::nothing;
}

template <class X>
X RingAttention::segment(const X& x, std::int64_t c) const {
  const std::int64_t tokens = x.dim(1) / split_.segments();
  return x.slice(1, c * tokens, tokens);
}

template <class X>
X RingAttention::lse_of(const X& lse, std::int64_t c) const {
  const std::int64_t rows = sizes_.B * sizes_.heads;
  const Shape shape{sizes_.B, sizes_.heads, lse.elements() / (rows * split_.segments())};
  return lse.reshape({split_.segments() * shape.elements()})
      .slice(0, c * shape.elements(), shape.elements())
      .reshape(shape);
}

AttentionDropout RingAttention::dropout_of(AttentionDropout dropout, std::int64_t T, int c, int of_share, int k) const {
  dropout.first_query = split_.segment_begins(T, own(), c);
  dropout.first_key = split_.segment_begins(T, of_share, k);
  return dropout;
}

DocumentMask RingAttention::documents_of(const Documents& documents, std::int64_t T, int c, int of_share, int k) const {
  if (!documents.starts) return {};
  const std::int64_t query = split_.segment_begins(T, own(), c);
  const std::int64_t key = split_.segment_begins(T, of_share, k);
  const std::int64_t tokens = split_.segment(T);
  const bool counts = documents.expected && ranks_.device() == Device::meta;
  return {.starts = documents.starts.slice(1, c * tokens, tokens),
          .first_key = key,
          .pairs = counts ? documents.expected->pairs(query, key, tokens) : -1};
}

RingAttention::Turning RingAttention::begin(const ConstTensor& k, const ConstTensor& v, Stream& stream) const {
  Turning turning(*this, tokens_of(k));
  if (ring() == 1) return turning;
  copy_heads({.y = keys_of(share(0, tokens_of(k))), .x = k}, stream);
  copy_heads({.y = values_of(share(0, tokens_of(k))), .x = v}, stream);
  turning.pass_on();
  return turning;
}

void RingAttention::Turning::pass_on() {
  under_way_ = ring_->exchange(ring_->share(turn_, T_), ring_->share(turn_ + 1, T_));
}

Tensor RingAttention::Turning::next() {
  under_way_.wait();
  ++turn_;
  if (turn_ + 1 < ring_->ring()) pass_on();
  return ring_->share(turn_, T_);
}

void RingAttention::forward(const Forward& a, Stream& stream) const {
  const Tensor& to = a.sums ? a.sums : a.o;
  const std::int64_t T = tokens_of(a.q);
  std::array<bool, 2> begun{};
  const auto attend = [&](int of_share, const ConstTensor& keys, const ConstTensor& values) {
    for (int c = 0; c < split_.segments(); ++c)
      for (int k = 0; k < split_.segments(); ++k) {
        const Sees what = sees(c, of_share, k);
        if (what == Sees::nothing) continue;
        const bool in_place = !begun[c] && !a.sums;
        const Tensor o = in_place ? segment(to, c) : a.part, lse = in_place ? lse_of(a.lse, c) : a.part_lse;
        attention_forward({.o = o,
                           .lse = lse,
                           .q = segment(a.q, c),
                           .k = segment(keys, k),
                           .v = segment(values, k),
                           .scale = a.scale,
                           .causal = what == Sees::itself,
                           .dropout = dropout_of(a.dropout, T, c, of_share, k),
                           .documents = documents_of(a.documents, T, c, of_share, k)},
                          stream);
        if (!in_place)
          attention_merge(
              {.o = segment(to, c), .lse = lse_of(a.lse, c), .part = o, .part_lse = lse, .first = !begun[c]}, stream);
        begun[c] = true;
      }
  };
  Turning turning = begin(a.k, a.v, stream);
  attend(own(), a.k, a.v);
  for (int turn = 1; turn < ring(); ++turn) {
    const Tensor arrived = turning.next();
    attend(share_at(turn), keys_of(arrived), values_of(arrived));
  }
  if (a.sums) copy_heads({.y = a.o, .x = a.sums}, stream);
}

void RingAttention::backward(const Backward& a, Turning& turning, Stream& stream) const {
  const std::int64_t T = tokens_of(a.q);
  // The gradients of one pair of segments.
  struct Gradients {
    Tensor dq, dk, dv;
  };
  const auto differentiate = [&](const Gradients& to, int c, int of_share, int k, const ConstTensor& keys,
                                 const ConstTensor& values) {
    attention_backward({.dq = to.dq,
                        .dk = to.dk,
                        .dv = to.dv,
                        .d_o = segment(a.d_o, c),
                        .q = segment(a.q, c),
                        .k = segment(keys, k),
                        .v = segment(values, k),
                        .o = segment(a.o, c),
                        .lse = lse_of(a.lse, c),
                        .scale = a.scale,
                        .causal = sees(c, of_share, k) == Sees::itself,
                        .dropout = dropout_of(a.dropout, T, c, of_share, k),
                        .deterministic = a.deterministic,
                        .documents = documents_of(a.documents, T, c, of_share, k),
                        .workspace = a.workspace},
                       stream);
  };
  if (ring() == 1) return differentiate({a.dq, a.dk, a.dv}, 0, own(), 0, a.k, a.v);
  const Tensor& dq = a.dq_sums ? a.dq_sums : a.dq;
  std::array<bool, 2> begun_q{};
  Exchange coming;  // the sum of the next share's gradients
  const auto sum_at = [&](int turn) { return half(a.sums, turn % 2); };
  // What is written there last is room for parts until then.
  const Tensor part_dk = segment(a.dk, 0), part_dv = segment(a.dv, 0);
  const auto add = [&](int turn, const ConstTensor& keys, const ConstTensor& values, int of_share) {
    const Tensor sum = sum_at(turn);
    // The first rank after the owner begins the sum. What none of its queries sees is zero.
    if (turn == 1) fill({.y = sum, .value = 0}, stream);
    for (int c = 0; c < split_.segments(); ++c)
      for (int k = 0; k < split_.segments(); ++k) {
        if (sees(c, of_share, k) == Sees::nothing) continue;
        const Tensor part_dq = begun_q[c] || a.dq_sums ? a.part_dq : segment(dq, c);
        differentiate({part_dq, part_dk, part_dv}, c, of_share, k, keys, values);
        if (begun_q[c] || a.dq_sums) copy_heads({.y = segment(dq, c), .x = part_dq, .accumulate = begun_q[c]}, stream);
        begun_q[c] = true;
        coming.wait();
        copy_heads({.y = segment(keys_of(sum), k), .x = part_dk, .accumulate = true}, stream);
        copy_heads({.y = segment(values_of(sum), k), .x = part_dv, .accumulate = true}, stream);
      }
    coming.wait();
  };
  for (int turn = 1; turn < ring(); ++turn) {
    const Tensor arrived = turning.next();
    add(turn, keys_of(arrived), values_of(arrived), share_at(turn));
    coming = exchange(sum_at(turn), sum_at(turn + 1));
  }
  add(ring(), a.k, a.v, own());
  const Tensor sum = sum_at(ring());
  copy_heads({.y = a.dk, .x = keys_of(sum)}, stream);
  copy_heads({.y = a.dv, .x = values_of(sum)}, stream);
  if (a.dq_sums) copy_heads({.y = a.dq, .x = a.dq_sums}, stream);
}

}  // namespace lockstep
