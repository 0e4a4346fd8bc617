#include "model/context_attention.h"

#include <cmath>

#include "model/attention_workspace.h"

namespace lockstep {

ContextAttention::ContextAttention(const Build& b, int unit, const Sizes& sizes)
    : split_(b.how.context),
      B_(b.B),
      D_(sizes.width),
      deterministic_(b.how.deterministic),
      documents_(b.how.documents) {
  const HeadSplit own(sizes.heads, sizes.keys, {.rank = split_.heads_rank(), .size = split_.heads});
  H_ = own.queries.each;
  K_ = own.keys.each;
  const Moment forward{unit, Phase::forward}, input{unit, Phase::input};
  const DType sums = accumulator_of(b.dtype);
  const std::int64_t share = b.T * split_.heads, segment = share / split_.segments();
  // Attention is the first half of a block's forward and the second of its backward.
  const auto in_forward = [&](const char* name, DType dtype, const Shape& shape, int rows_dim = 0) {
    return b.add(
        SlotSpec{name, dtype, shape, forward, forward, Half::first, Half::first}.of(SlotRows::tokens, rows_dim));
  };
  const auto kept = [&](const char* name, DType dtype, const Shape& shape) {
    return b.add(SlotSpec{name, dtype, shape, forward, input}.of(SlotRows::tokens));
  };
  const auto in_backward = [&](const char* name, DType dtype, const Shape& shape, int rows_dim = 0) {
    return b.add(SlotSpec{name, dtype, shape, input, input, Half::second}.of(SlotRows::tokens, rows_dim));
  };
  lse_ = kept("lse", sums, {B_ * H_ * share});
  if (split_.heads > 1) {
    const Shape projected{B_ * share, (H_ + 2 * K_) * D_}, mixed{B_ * share, H_ * D_};
    projected_ = projected_again_ =
        sizes.keeps ? kept("qkv of heads", b.dtype, projected) : in_forward("qkv of heads", b.dtype, projected);
    if (!sizes.keeps) projected_again_ = in_backward("qkv of heads again", b.dtype, projected);
    mixed_ = kept("attention of heads", b.dtype, mixed);
    d_projected_ = in_backward("d_qkv of heads", b.dtype, projected);
    d_mixed_ = in_backward("d_attention of heads", b.dtype, mixed);
  }
  if (split_.ring > 1) {
    const Shape part{B_, segment, H_, D_}, parts{B_, share, H_, D_};
    part_ = in_forward("attention to some keys", b.dtype, part, 1);
    part_lse_ = in_forward("lse of some keys", sums, {B_, H_, segment}, 2);
    part_dq_ = in_backward("dq of some keys", b.dtype, part, 1);
    dkv_sums_ = in_backward("dk and dv of a ring", sums, {4 * B_ * share * K_ * D_});
    if (b.dtype != sums) {
      sums_ = in_forward("attention in sums", sums, parts, 1);
      dq_sums_ = in_backward("dq in sums", sums, parts, 1);
    }
  }
  workspace_ = attention_workspace_slot(b, unit, segment, H_, K_, D_);
}

ContextAttention::Heads ContextAttention::share_heads(Slot slot, const Heads& own, const Call& call) const {
  if (!exchanges_heads()) return own;
  const Tensor rows = call.at[slot], all = rows.split(1, H_ + 2 * K_, D_).split(0, B_, rows.dim(0) / B_);
  return {all.slice(2, 0, H_), all.slice(2, H_, K_), all.slice(2, H_ + K_, K_)};
}

Tensor ContextAttention::share_mixed(Slot slot, const Tensor& own, const Call& call) const {
  if (!exchanges_heads()) return own;
  const Tensor rows = call.at[slot];
  return rows.split(1, H_, D_).split(0, B_, rows.dim(0) / B_);
}

namespace {
std::array<UlyssesExchange::Exchanged, 3> both_ways(const ContextAttention::Heads& tokens,
                                                    const ContextAttention::Heads& heads) {
  return {{{tokens.q, heads.q}, {tokens.k, heads.k}, {tokens.v, heads.v}}};
}
}  // namespace

void ContextAttention::exchange_projected(Slot to, const Heads& in, const Call& call) const {
  call.context->heads().to_heads(both_ways(in, share_heads(to, in, call)), call.stream);
}

void ContextAttention::forward(const Tensor& o, const Heads& own, const AttentionDropout& dropout,
                               const Call& call) const {
  if (exchanges_heads()) exchange_projected(projected_, own, call);
  const Heads in = share_heads(projected_, own, call);
  const Tensor mixed = share_mixed(mixed_, o, call);
  const bool turns = split_.ring > 1;
  RingAttention::Forward args{.o = mixed,
                              .lse = call.at[lse_],
                              .q = in.q,
                              .k = in.k,
                              .v = in.v,
                              .scale = 1 / std::sqrt(static_cast<double>(D_)),
                              .dropout = dropout,
                              .documents = {.starts = call.batch.starts, .expected = documents_.get()},
                              .part = turns ? call.at[part_] : Tensor{},
                              .part_lse = turns ? call.at[part_lse_] : Tensor{},
                              .sums = sums_ >= 0 ? call.at[sums_] : Tensor{}};
  args.dropout.first_head += call.context->first_head();
  call.context->ring().forward(args, call.stream);
  if (exchanges_heads()) {
    const UlyssesExchange::Exchanged back{o, mixed};
    call.context->heads().to_tokens({&back, 1}, call.stream);
  }
}

RingAttention::Turning ContextAttention::begin_backward(const Heads& own, const Call& call) const {
  if (projected_again_ != projected_) exchange_projected(projected_again_, own, call);
  const Heads in = share_heads(projected_again_, own, call);
  return call.context->ring().begin(in.k, in.v, call.stream);
}

void ContextAttention::backward(const Heads& own_gradients, const Tensor& own_d_o, const Tensor& own_o,
                                const Heads& own, const AttentionDropout& dropout, RingAttention::Turning& turning,
                                const Call& call) const {
  const Heads in = share_heads(projected_again_, own, call), d_in = share_heads(d_projected_, own_gradients, call);
  const Tensor d_o = share_mixed(d_mixed_, own_d_o, call);
  if (exchanges_heads()) {
    const UlyssesExchange::Exchanged there{own_d_o, d_o};
    call.context->heads().to_heads({&there, 1}, call.stream);
  }
  const bool turns = split_.ring > 1;
  RingAttention::Backward args{.dq = d_in.q,
                               .dk = d_in.k,
                               .dv = d_in.v,
                               .d_o = d_o,
                               .q = in.q,
                               .k = in.k,
                               .v = in.v,
                               .o = share_mixed(mixed_, own_o, call),
                               .lse = call.at[lse_],
                               .scale = 1 / std::sqrt(static_cast<double>(D_)),
                               .dropout = dropout,
                               .documents = {.starts = call.batch.starts, .expected = documents_.get()},
                               .deterministic = deterministic_,
                               .workspace = workspace_ >= 0 ? call.at[workspace_] : Tensor{},
                               .part_dq = turns ? call.at[part_dq_] : Tensor{},
                               .sums = turns ? call.at[dkv_sums_] : Tensor{},
                               .dq_sums = dq_sums_ >= 0 ? call.at[dq_sums_] : Tensor{}};
  args.dropout.first_head += call.context->first_head();
  call.context->ring().backward(args, turning, call.stream);
  if (exchanges_heads()) call.context->heads().to_tokens(both_ways(own_gradients, d_in), call.stream);
}

}  // namespace lockstep
