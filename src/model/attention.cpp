#include "model/attention.h"

#include <cmath>

#include "kernels/quantize.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "model/attention_workspace.h"

namespace lockstep {

HeadNorm::HeadNorm(UnitLayout& layout, const Build& build, int unit, const std::string& name, std::int64_t heads)
    : eps_(build.spec.norm_eps), frozen_(build.frozen()) {
  const std::int64_t D = build.spec.head_width;
  weight_ = layout.add({.shape = {D},
                        .pieces = {build.on_all_ranks({name + ".weight", {D}}, true)},
                        .init = Init::ones,
                        .frozen = frozen_});
  rstd_ = build.add(SlotSpec{name + ".rstd",
                             accumulator_of(build.dtype),
                             {build.tokens(), heads},
                             {unit, Phase::forward},
                             {unit, build.how.weights_later || frozen_ ? Phase::input : Phase::weight}}
                        .of(SlotRows::tokens));
  if (build.how.weights_later && !frozen_) held_ = HeldGradient(build, unit, name + ".weight", D);
}

void HeadNorm::forward(Tensor y, ConstTensor x, const Call& call) const {
  rmsnorm_forward({.y = y, .rstd = call.at[rstd_], .x = x, .weight = call.weight(weight_), .eps = eps_}, call.stream);
}

void HeadNorm::backward_input(Tensor dx, ConstTensor dy, ConstTensor x, const Call& call) const {
  if (held_.is_held())
    rmsnorm_backward_weight({.dweight = held_.sum(call), .dy = dy, .x = x, .rstd = call.at[rstd_]}, call.stream);
  rmsnorm_backward_input({.dx = dx, .dy = dy, .x = x, .weight = call.weight(weight_), .rstd = call.at[rstd_]},
                         call.stream);
}

void HeadNorm::backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const {
  if (frozen_) return;
  if (held_.is_held()) return held_.add_to(call.gradient(weight_), call);
  rmsnorm_backward_weight(
      {.dweight = call.gradient(weight_), .dy = dy, .x = x, .rstd = call.at[rstd_], .accumulate = call.accumulate},
      call.stream);
}

namespace {

// Heads as outputs of a projection that begins with output `begin` of `all`.
Part outputs(const Part& heads, std::int64_t D, std::int64_t begin, std::int64_t all) {
  return {all, begin + heads.first * D, heads.count * D, heads.each * D};
}

Linear::Options qkv_options(const Build& b, const BlockNames& names, const HeadSplit& heads) {
  const ModelSpec& s = b.spec;
  const TensorSplit& split = b.how.split;
  const std::int64_t D = s.head_width, q = s.heads * D, kv = s.kv_heads * D;
  Linear::Options o{
      .in = Part::whole(s.width), .in_out = s.in_out_weights, .init_std = s.init_std, .pieces = {}, .bias = s.qkv_bias};
  o.inputs_measured = true;
  o.inputs_turned_again = Fp8Products::read_norms(b, s.width, Attention::inputs(b));
  o.gradients_measured = s.positions == PositionKind::rope && !s.qk_norm;
  const bool first = split.rank % heads.copies == 0;
  if (names.qkv.empty())
    o.pieces = {{names.query, {outputs(heads.queries, D, 0, q)}},
                {names.key, {outputs(heads.keys, D, 0, kv)}, first, heads.copies},
                {names.value, {outputs(heads.keys, D, 0, kv)}, first, heads.copies}};
  else if (split.size == 1)
    o.pieces = {{names.qkv, {Part::whole(q + 2 * kv)}}};
  else
    o.pieces = {{names.qkv,
                 {outputs(heads.queries, D, 0, q + 2 * kv), outputs(heads.keys, D, q, q + 2 * kv),
                  outputs(heads.keys, D, q + kv, q + 2 * kv)}}};
  return o;
}

}  // namespace

std::int64_t Attention::inputs(const Build& b) {
  const HeadSplit heads(b.spec.heads, b.spec.kv_heads, b.how.split);
  return (heads.queries.each + 2 * heads.keys.each) * b.spec.head_width;
}

bool Attention::ends_in_fp8(const Build& b) {
  const HeadSplit heads(b.spec.heads, b.spec.kv_heads, b.how.split);
  return Fp8Products::fit(b, heads.queries.each * b.spec.head_width, b.spec.width);
}

Attention::Attention(UnitLayout& layout, const Build& b, int unit, const BlockNames& names, Slot dy_amax)
    : B_(b.B),
      heads_(b.spec.heads, b.spec.kv_heads, b.how.split),
      H_(heads_.queries.each),
      K_(heads_.keys.each),
      D_(b.spec.head_width),
      rope_(b.spec.positions == PositionKind::rope),
      qkv_(layout, b, {unit, Half::first, "attention's inputs"}, qkv_options(b, names, heads_)),
      out_(layout, b, {unit, Half::first, "attention's outputs"},
           {.in = outputs(heads_.queries, D_, 0, b.spec.heads * D_),
            .in_out = b.spec.in_out_weights,
            // Branches that join the residual start smaller in deeper models, as GPT-2's do.
            .init_std = b.spec.init_std / std::sqrt(2.0 * static_cast<double>(b.spec.layers)),
            .pieces = {{names.out, {Part::whole(b.spec.width)}}},
            .bias = b.spec.out_bias,
            .gradients_largest = dy_amax}),
      cached_(b, unit, H_, D_),
      dropout_(b.spec.attention_dropout, names.out + "/probabilities"),
      deterministic_(b.how.deterministic),
      pairs_(b.how.documents ? b.how.documents->all_pairs() : -1) {
  const std::int64_t all = inputs(b);
  const bool keeps = b.recompute(unit).keeps_projections;
  const Phase last = b.spec.qk_norm && !b.how.weights_later && !b.frozen() ? Phase::weight : Phase::input;
  // The first half of a block's forward, the second of its backward. What attention reads is kept elsewhere where heads
  // are exchanged.
  const auto kept = [&](const char* name, std::int64_t columns, bool stays, Phase until) {
    return b.rows(unit, name, columns, Phase::forward, stays ? until : Phase::forward, Half::first,
                  stays ? Half::second : Half::first);
  };
  const bool reads = keeps && b.how.context.heads == 1;
  first_.fused = kept("qkv", all, b.spec.qk_norm ? keeps : reads, last);
  if (b.spec.qk_norm) first_.turned = kept("turned", (H_ + K_) * D_, reads, Phase::input);
  again_ = first_;
  if (!keeps) {
    again_.fused = b.rows(unit, "qkv again", all, Phase::input, last, Half::second);
    if (b.spec.qk_norm)
      again_.turned = b.rows(unit, "turned again", (H_ + K_) * D_, Phase::input, Phase::input, Half::second);
  }
  mixed_ = b.rows(unit, "attention", H_ * D_, Phase::forward, b.read_last(out_.trains()));
  d_fused_ = b.rows(unit, "d_qkv", all, Phase::input, b.read_last(qkv_.trains()), Half::second);
  d_mixed_ = b.rows(unit, "d_attention", H_ * D_, Phase::input, Phase::input, Half::second);
  if (b.how.context.size() > 1) {
    context_.emplace(b, unit, ContextAttention::Sizes{.heads = H_, .keys = K_, .width = D_, .keeps = keeps});
  } else {
    const Moment forward{unit, Phase::forward}, input{unit, Phase::input};
    lse_ = b.add(SlotSpec{"lse", accumulator_of(b.dtype), {B_, H_, b.T}, forward, input}.of(SlotRows::tokens, 2));
    workspace_ = attention_workspace_slot(b, unit, b.T, H_, K_, D_);
  }
  if (b.spec.qk_norm) {
    d_normed_ = b.rows(unit, "d_normed", (H_ + K_) * D_, Phase::input, last, Half::second);
    query_norm_.emplace(layout, b, unit, names.query_norm, H_);
    key_norm_.emplace(layout, b, unit, names.key_norm, K_);
  }
}

Tensor Attention::heads(const Tensor& fused, std::int64_t first, std::int64_t count) const {
  return fused.split(1, fused.dim(1) / D_, D_).slice(1, first, count);
}

Tensor Attention::split(const Tensor& rows) const { return rows.split(0, B_, rows.dim(0) / B_); }

Attention::Heads Attention::inputs(const Projected& from, const Call& call) const {
  const Tensor &fused = call.at[from.fused], &turned = from.turned < 0 ? fused : call.at[from.turned];
  return {split(heads(turned, 0, H_)), split(heads(turned, H_, K_)), split(heads(fused, H_ + K_, K_))};
}

void Attention::turn(const Tensor& queries_and_keys, bool inverse, const Call& call, const Tensor& amax) const {
  if (!rope_) return;
  rope({.x = split(heads(queries_and_keys, 0, H_ + K_)),
        .cos = call.batch.rope_cos,
        .sin = call.batch.rope_sin,
        .inverse = inverse,
        .positions = call.batch.in_document,
        .amax = amax},
       call.stream);
}

void Attention::finish_projection(const Projected& to, const Call& call) const {
  const Tensor &fused = call.at[to.fused], &turned = to.turned < 0 ? fused : call.at[to.turned];
  if (query_norm_) {
    query_norm_->forward(heads(turned, 0, H_), heads(fused, 0, H_), call);
    key_norm_->forward(heads(turned, H_, K_), heads(fused, H_, K_), call);
  }
  turn(turned, false, call);
}

AttentionDropout Attention::dropout(const Call& call) const {
  if (!dropout_.active(call)) return {};
  return {.probability = dropout_.probability(),
          .key = dropout_.key(call),
          .first_sample = call.batch.first_sample,
          .first_head = heads_.queries.first};
}

DocumentMask Attention::documents(const Call& call) const {
  return {.starts = call.batch.starts, .first_key = 0, .pairs = pairs_};
}

void Attention::forward(Tensor y, const ProductInput& x, const Call& call, ConstTensor residual) const {
  recompute(x, call);
  out_.forward(y, call.at[mixed_], call, residual);
}

void Attention::recompute(const ProductInput& x, const Call& call) const {
  qkv_.forward(call.at[first_.fused], x, call);
  finish_projection(first_, call);
  attend(call);
}

void Attention::attend(const Call& call) const {
  const Tensor mixed = split(heads(call.at[mixed_], 0, H_));
  if (context_) return context_->forward(mixed, inputs(first_, call), dropout(call), call);
  const Heads in = inputs(first_, call);
  if (call.caches) return cached_.forward(mixed, call.at[lse_], in, call);
  AttentionForwardArgs args{.o = mixed,
                            .lse = call.at[lse_],
                            .q = in.q,
                            .k = in.k,
                            .v = in.v,
                            .scale = 1 / std::sqrt(static_cast<double>(D_))};
  args.dropout = dropout(call);
  args.documents = documents(call);
  attention_forward(args, call.stream);
}

void Attention::backward_input(Tensor dx, ConstTensor dy, const ProductInput& x, const Call& call) const {
  if (dx.none() && !qkv_.trains()) return out_.backward_input({}, dy, call);
  const Tensor& d_fused = call.at[d_fused_];
  if (again_.fused != first_.fused) {
    qkv_.forward_again(call.at[again_.fused], x, call);
    finish_projection(again_, call);
  } else {
    qkv_.turn_inputs(x, call);
  }
  const Heads in = inputs(again_, call);
  // With norms in between, the gradients of queries and keys are those of the turned ones.
  const Tensor& d_turned = again_.turned < 0 ? d_fused : call.at[d_normed_];
  const Heads gradients{split(heads(d_turned, 0, H_)), split(heads(d_turned, H_, K_)),
                        split(heads(d_fused, H_ + K_, K_))};
  if (context_) {
    const Tensor d_mixed = split(heads(call.at[d_mixed_], 0, H_)), mixed = split(heads(call.at[mixed_], 0, H_));
    RingAttention::Turning turning = context_->begin_backward(in, call);
    out_.backward_input(call.at[d_mixed_], dy, call);
    context_->backward(gradients, d_mixed, mixed, in, dropout(call), turning, call);
  } else {
    out_.backward_input(call.at[d_mixed_], dy, call);
    attend_backward(gradients, in, call);
  }
  const Tensor largest = measures_by_turning() ? qkv_.gradients_amax(call) : Tensor{};
  turn(d_turned, true, call, largest);
  if (largest)  // and what is not turned
    amax({.amax = largest, .x = d_fused.slice(1, (H_ + K_) * D_, K_ * D_), .joins = true}, call.stream);
  if (query_norm_) {
    const Tensor &fused = call.at[again_.fused], &d_normed = call.at[d_normed_];
    query_norm_->backward_input(heads(d_fused, 0, H_), heads(d_normed, 0, H_), heads(fused, 0, H_), call);
    key_norm_->backward_input(heads(d_fused, H_, K_), heads(d_normed, H_, K_), heads(fused, H_, K_), call);
  }
  qkv_.backward_input(dx, d_fused, call);
}

void Attention::attend_backward(const Heads& gradients, const Heads& in, const Call& call) const {
  AttentionBackwardArgs args{.dq = gradients.q,
                             .dk = gradients.k,
                             .dv = gradients.v,
                             .d_o = split(heads(call.at[d_mixed_], 0, H_)),
                             .q = in.q,
                             .k = in.k,
                             .v = in.v,
                             .o = split(heads(call.at[mixed_], 0, H_)),
                             .lse = call.at[lse_],
                             .scale = 1 / std::sqrt(static_cast<double>(D_)),
                             .deterministic = deterministic_};
  if (workspace_ >= 0) args.workspace = call.at[workspace_];
  args.dropout = dropout(call);
  args.documents = documents(call);
  attention_backward(args, call.stream);
}

void Attention::backward_weight(ConstTensor dy, const ProductInput& x, const Call& call) const {
  RowLinear::Gathering gradients = out_.begin_weight(dy, call);
  ColumnLinear::Gathering inputs = qkv_.begin_weight(x, call);
  out_.backward_weight(dy, call.at[mixed_], gradients, call);
  if (query_norm_) {
    const Tensor &fused = call.at[again_.fused], &d_normed = call.at[d_normed_];
    query_norm_->backward_weight(heads(d_normed, 0, H_), heads(fused, 0, H_), call);
    key_norm_->backward_weight(heads(d_normed, H_, K_), heads(fused, H_, K_), call);
  }
  qkv_.backward_weight(call.at[d_fused_], x, inputs, call);
}

}  // namespace lockstep
