#include "parallel/offloaded_gradients.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace lockstep {

OffloadedGradients::OffloadedGradients(const Options& options, const Shard& shard, Memory& memory, Stream& stream)
    : stream_(stream),
      tie_(options.tie),
      layouts_(options.layouts),
      offloaded_(options.offloaded),
      complete_(options.complete) {
  find_touches(options.actions);
  const int width = static_cast<int>(size_of(options.dtype));
  for (std::size_t u = 0; u < layouts_.size(); ++u) {
    const std::int64_t elements = shard.padded(layouts_[u]->owned());
    Memory& where = offloaded_[u] ? *options.offload : memory;
    buffers_.push_back(elements > 0 ? where.allocate(elements * width, Tag::gradient, layouts_[u]->name()) : Buffer());
    flat_.push_back(elements > 0 ? view(buffers_.back(), options.dtype, {elements}) : Tensor{});
    if (elements > 0) clear(flat_.back(), stream);  // padding stays so
    const std::int64_t tied = layouts_[u]->elements() - layouts_[u]->owned();
    if (tied > 0) {
      tied_ = memory.allocate(tied * width, Tag::gradient, layouts_[u]->name());
      all_tied_ = view(tied_, options.dtype, {tied});
      clear(all_tied_, stream);
    }
    tensors_.push_back(offloaded_[u] || elements == 0
                           ? std::vector<Tensor>{}
                           : parameters_in(*layouts_[u], flat_.back(), tied > 0 ? all_tied_ : Tensor{}));
  }
  if (tie_) {
    const std::int64_t elements = tie_->owner->parameters()[tie_->owner_parameter].elements();
    if (!tie_->has_borrower) {
      tied_ = memory.allocate(elements * width, Tag::gradient, tie_->owner->name());
      all_tied_ = view(tied_, options.dtype, {elements});
    }
    tied_gradient_ = all_tied_.slice(0, 0, elements);  // the only one that is tied
  }
  visits_.emplace(Visits::Options{.tensors = flat_,
                                  .order = order_,
                                  .on_disk = options.offload_on_disk,
                                  .rooms = options.rooms,
                                  .tag = Tag::gradient,
                                  .name = "on their way"},
                  memory, stream);
}

void OffloadedGradients::find_touches(const std::vector<Action>& actions) {
  const int last = static_cast<int>(layouts_.size()) - 1;
  for (const Action& a : actions) {
    const bool touches = a.kind == ActionKind::backward_weight || a.kind == ActionKind::reduce ||
                         (a.kind == ActionKind::forward && a.unit == last);
    if (!touches || !offloaded_[static_cast<std::size_t>(a.unit)]) continue;
    const bool again = !touches_.empty() && touches_.back().unit == a.unit;
    if (again) touches_.back().leaves = false;
    touches_.push_back({.unit = a.unit, .enters = !again, .leaves = true});
    if (again) continue;
    const bool known = std::ranges::find(order_, a.unit, &Visits::Visit::tensor) != order_.end();
    order_.push_back({.tensor = a.unit, .brings = known});
  }
}

void OffloadedGradients::enter(int unit) {
  LOCKSTEP_CHECK(next_ < touches_.size() && touches_[next_].unit == unit, "unit {} is written out of its turn", unit);
  if (!touches_[next_].enters) return;
  here_ = visits_->enter(unit);
  if (!order_[entered_++].brings) fill({.y = here_, .value = 0}, stream_);  // padding
  tensors_[static_cast<std::size_t>(unit)] = parameters_in(*layouts_[static_cast<std::size_t>(unit)], here_, all_tied_);
}

const std::vector<Tensor>& OffloadedGradients::open(int unit, int) {
  if (is_offloaded(unit)) enter(unit);
  return tensors_[static_cast<std::size_t>(unit)];
}

void OffloadedGradients::close(int unit) {
  if (is_offloaded(unit) && touches_[next_++].leaves) visits_->leave(unit);
}

// The two homes of a tied weight's gradient become one.
void OffloadedGradients::whole(int unit, int) {
  if (is_offloaded(unit)) enter(unit);
  if (tie_ && unit == tie_->owner_unit) {
    const Tensor owner = tensors_[unit][tie_->owner_parameter].reshape(tied_gradient_.shape());
    add({.y = owner, .a = owner, .b = tied_gradient_}, stream_);
  }
  if (complete_) complete_(unit, is_offloaded(unit) ? here_ : flat_[static_cast<std::size_t>(unit)]);
  close(unit);
}

void OffloadedGradients::wait() {
  if (next_ == 0) return;
  LOCKSTEP_CHECK(next_ == touches_.size(), "{} of {} actions have come", next_, touches_.size());
  next_ = entered_ = 0;
}

}  // namespace lockstep
