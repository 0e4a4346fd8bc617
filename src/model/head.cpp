#include "model/head.h"

#include <algorithm>

#include "base/integers.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"

namespace lockstep {

namespace {
// Tokens of one chunk. Every chunk passes once more over the weight and, reading and writing 8 bytes an element, over
// its gradient, so there are not more than eight of them, except where that would be more than 2^29 logits (of 4 bytes:
// the gradient takes no room of its own); about eight million logits stand at once in any case, and never so few tokens
// that the products become thin.
std::int64_t chunk_tokens(std::int64_t tokens, std::int64_t vocabulary) {
  const auto holding = [&](int log2) { return (std::int64_t{1} << log2) / vocabulary; };
  const std::int64_t wanted = std::max({std::int64_t{128}, holding(23), std::min(ceil_div(tokens, 8), holding(29))});
  return std::min(tokens, round_up(wanted, 64));
}
}  // namespace

Head::Head(const Build& b, int unit, const Between& between)
    : Unit("head"),
      between_(between),
      norm_(layout_, b.slots, unit, b.spec, b.dtype, model_names(b.spec).final_norm, b.tokens()),
      chunk_(chunk_tokens(b.how.loss_tokens > 0 ? b.how.loss_tokens : b.tokens(), b.spec.vocabulary)) {
  const std::int64_t V = b.spec.vocabulary, C = b.spec.width;
  StoredParameter weight{.shape = {V, C}, .init_std = b.spec.init_std, .tied = b.spec.tied};
  if (!b.spec.tied) weight.pieces = {{model_names(b.spec).head + ".weight", {V, C}}};
  weight_ = layout_.add(std::move(weight));

  const DType sums = accumulator_of(b.dtype);
  normed_ = b.rows(unit, "normed", C, Phase::forward, Phase::forward);
  d_normed_ = b.rows(unit, "d_normed", C, Phase::forward, Phase::weight);
  logits_ = b.slots.add({"logits", sums, {chunk_, V}, {unit, Phase::forward}, {unit, Phase::forward}});
}

void Head::logits(Tensor out, std::int64_t first, const Call& call) const {
  matmul({.c = out, .a = call.at[normed_].slice(0, first, out.dim(0)), .b = call.weight(weight_), .transpose_b = true},
         call.stream);
}

void Head::last_logits(Tensor out, const Call& call) const {
  norm_.forward(call.at[normed_], call.at[between_.x], call);
  logits(out, call.at[normed_].dim(0) - out.dim(0), call);
}

// The losses of one chunk; gives the gradient of its logits, which lies over them.
Tensor Head::take_losses(const Tensor& scores, std::int64_t first, const Call& call) const {
  const Batch& batch = call.batch;
  const std::int64_t count = scores.dim(0);
  if (batch.central) {
    const Tensor d_scores(scores.raw(), call.at[normed_].dtype(), scores.device(), scores.shape());
    batch.central->run(scores, batch.training ? d_scores : Tensor{}, batch.micro, first, batch.training,
                       batch.central_targets, call.stream);
    return d_scores;
  }
  const Tensor d_scores = batch.training ? scores.narrowed(call.at[normed_].dtype()) : Tensor{};
  cross_entropy({.losses = batch.losses.slice(0, first, count),
                 .dlogits = d_scores,
                 .logits = scores,
                 .targets = batch.targets.slice(0, first, count),
                 .scale = batch.loss_scale},
                call.stream);
  return d_scores;
}

void Head::forward(const Call& call) const {
  const Tensor& normed = call.at[normed_];
  norm_.forward(normed, call.at[between_.x], call);
  const std::int64_t tokens = normed.dim(0), end = call.batch.central ? call.batch.central->most_tokens() : tokens;
  for (std::int64_t first = 0; first < end; first += chunk_) {
    const std::int64_t count = std::clamp<std::int64_t>(tokens - first, 0, chunk_);
    const Tensor scores = call.at[logits_].slice(0, 0, count);
    if (count > 0) logits(scores, first, call);
    const Tensor d_scores = take_losses(scores, first, call);
    if (!call.batch.training || count == 0) continue;
    matmul({.c = call.at[d_normed_].slice(0, first, count), .a = d_scores, .b = call.weight(weight_)}, call.stream);
    matmul({.c = call.gradient(weight_),
            .a = d_scores,
            .b = normed.slice(0, first, count),
            .transpose_a = true,
            .accumulate = call.accumulate || first > 0},
           call.stream);
  }
}

void Head::backward_input(const Call& call) const {
  norm_.backward_input(call.at[between_.dx], call.at[d_normed_], call.at[between_.x], {}, call);
}

void Head::backward_weight(const Call& call) const {
  norm_.backward_weight(call.at[d_normed_], call.at[between_.x], call);
}

}  // namespace lockstep
