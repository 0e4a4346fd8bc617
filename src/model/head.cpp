#include "model/head.h"

#include <algorithm>

#include "base/integers.h"
#include "kernels/cross_entropy.h"
#include "kernels/matmul.h"
#include "kernels/split_cross_entropy.h"

namespace lockstep {

namespace {
// Tokens of one tile. Every tile passes once more over the weight and, reading and writing 8 bytes an element, over
// its gradient, so there are not more than eight of them, except where that would be more than 2^29 logits (of 4 bytes:
// the gradient takes no room of its own); about eight million logits stand at once in any case, and never so few tokens
// that the products become thin.
std::int64_t tile_tokens(std::int64_t tokens, std::int64_t vocabulary) {
  const auto holding = [&](int log2) { return (std::int64_t{1} << log2) / vocabulary; };
  const std::int64_t wanted = std::max({std::int64_t{128}, holding(23), std::min(ceil_div(tokens, 8), holding(29))});
  return std::min(tokens, round_up(wanted, 64));
}
}  // namespace

Head::Head(const Build& b, int unit, const Between& between)
    : Unit("head"),
      between_(between),
      frozen_(b.frozen()),
      norm_(layout_, b, unit, model_names(b.spec).final_norm),
      vocabulary_(b.how.split.part(b.spec.vocabulary)),
      tile_(tile_tokens(b.how.loss_tokens > 0 ? b.how.loss_tokens : b.tokens(), vocabulary_.each)) {
  const std::int64_t V = vocabulary_.each, C = b.spec.width;
  StoredParameter weight{.shape = {V, C}, .init_std = b.spec.init_std, .tied = b.spec.tied, .frozen = frozen_};
  if (!b.spec.tied)
    weight.pieces = {rows_of({model_names(b.spec).head + ".weight", {b.spec.vocabulary, C}}, vocabulary_)};
  weight_ = layout_.add(std::move(weight));

  const DType sums = accumulator_of(b.dtype);
  normed_ = b.own_rows(unit, "normed", C, Phase::forward, Phase::forward);
  d_normed_ = b.own_rows(unit, "d_normed", C, Phase::forward, frozen_ ? Phase::input : Phase::weight);
  const Moment forward{unit, Phase::forward};
  logits_ = b.slots.add({"logits", sums, {tile_, V}, forward, forward});
  if (b.splits()) {
    const std::int64_t each = tile_ * kLossStatistics;
    statistics_ = b.slots.add({"statistics of logits", sums, {each}, forward, forward});
    all_statistics_ = b.slots.add({"statistics of all logits", sums, {b.how.split.size * each}, forward, forward});
  }
  if (b.how.split.sequence) {
    all_normed_ = b.rows(unit, "normed of all tokens", C, Phase::forward, Phase::forward);
    d_all_normed_ = b.rows(unit, "d_normed of all tokens", C, Phase::forward, Phase::forward);
  }
}

void Head::logits(Tensor out, std::int64_t first, const Call& call) const {
  matmul({.c = out, .a = normed(call).slice(0, first, out.dim(0)), .b = call.weight(weight_), .transpose_b = true},
         call.stream);
}

void Head::last_logits(Tensor out, const Call& call) const {
  LOCKSTEP_CHECK(!call.split().sequence, "the last tokens are {} ranks'", call.split().size);
  norm_.forward(normed(call), call.at[between_.x], call);
  logits(out, normed(call).dim(0) - out.dim(0), call);
}

// The losses of one tile; gives the gradient of its logits, which lies over them.
Tensor Head::take_losses(const Tensor& scores, std::int64_t first, const Call& call) const {
  const Batch& batch = call.batch;
  const std::int64_t count = scores.dim(0);
  if (batch.remote_loss) {
    const Tensor d_scores(scores.raw(), call.at[normed_].dtype(), scores.device(), scores.shape());
    batch.remote_loss->run(scores, batch.training ? d_scores : Tensor{}, batch.micro, first, batch.training,
                           call.stream);
    return d_scores;
  }
  const Tensor d_scores = batch.training ? scores.narrowed(call.at[normed_].dtype()) : Tensor{};
  if (call.split().size > 1) {
    take_split_losses(scores, d_scores, first, call);
    return d_scores;
  }
  cross_entropy({.losses = batch.losses.slice(0, first, count),
                 .dlogits = d_scores,
                 .logits = scores,
                 .targets = batch.targets.slice(0, first, count),
                 .scale = batch.loss_scale,
                 .likeliest = likeliest_of(batch, first, count)},
                call.stream);
  return d_scores;
}

void Head::take_split_losses(const Tensor& scores, const Tensor& d_scores, std::int64_t first, const Call& call) const {
  const Batch& batch = call.batch;
  const std::int64_t count = scores.dim(0), ranks = call.split().size;
  const auto rows = [&](Slot slot, std::int64_t times) {
    return call.at[slot].slice(0, 0, times * count * kLossStatistics);
  };
  const Tensor own = rows(statistics_, 1), all = rows(all_statistics_, ranks);
  const ConstTensor targets = batch.targets.slice(0, first, count);
  split_cross_entropy_statistics({.statistics = own.reshape({count, kLossStatistics}),
                                  .logits = scores,
                                  .targets = targets,
                                  .first = vocabulary_.first,
                                  .valid = vocabulary_.count},
                                 call.stream);
  call.tensor->ranks().all_gather(all, own)->wait();
  split_cross_entropy({.losses = batch.losses.slice(0, first, count),
                       .dlogits = d_scores,
                       .logits = scores,
                       .targets = targets,
                       .statistics = all.reshape({ranks, count, kLossStatistics}),
                       .scale = batch.loss_scale,
                       .first = vocabulary_.first,
                       .valid = vocabulary_.count,
                       .likeliest = likeliest_of(batch, first, count)},
                      call.stream);
}

void Head::forward(const Call& call) const {
  const TensorSplit split = call.split();
  const Tensor& normed = this->normed(call);
  const Tensor& d_normed = call.at[split.sequence ? d_all_normed_ : d_normed_];
  norm_.forward(call.at[normed_], call.at[between_.x], call);
  if (split.sequence) call.tensor->gather(normed, call.at[normed_]);
  const RemoteLoss* remote = call.batch.remote_loss;
  const std::int64_t tokens = normed.dim(0), end = remote ? remote->most_tokens() : tokens;
  for (std::int64_t first = 0; first < end; first += tile_) {
    const std::int64_t count = std::clamp<std::int64_t>(tokens - first, 0, tile_);
    const Tensor scores = call.at[logits_].slice(0, 0, count);
    if (count > 0) logits(scores, first, call);
    const Tensor d_scores = take_losses(scores, first, call);
    if (!call.batch.training || count == 0) continue;
    matmul({.c = d_normed.slice(0, first, count), .a = d_scores, .b = call.weight(weight_)}, call.stream);
    if (frozen_) continue;
    matmul({.c = call.gradient(weight_),
            .a = d_scores,
            .b = normed.slice(0, first, count),
            .transpose_a = true,
            .accumulate = call.accumulate || first > 0},
           call.stream);
  }
  if (call.batch.training && split.size > 1) call.tensor->sum(call.at[d_normed_], d_normed);
}

void Head::backward_input(const Call& call) const {
  norm_.backward_input(call.at[between_.dx], call.at[d_normed_], call.at[between_.x], {}, call, {},
                       call.at[between_.dx_amax]);
}

void Head::backward_weight(const Call& call) const {
  norm_.backward_weight(call.at[d_normed_], call.at[between_.x], call);
}

}  // namespace lockstep
