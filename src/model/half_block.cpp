#include "model/half_block.h"

#include <fmt/format.h>

#include "kernels/elementwise.h"

namespace lockstep {

namespace {
// The second run of a forward ends before the branch's last product, so what stands alone has one life.
BranchSlots half_slots(const Build& b, int unit, const Between& between, bool ends_trained) {
  BranchSlots slots{.between = between};
  const Moment forward{unit, Phase::forward};
  if (b.branches_stand_alone())
    slots.alone =
        b.slots.add(SlotSpec{"branch", b.dtype, {b.own_tokens(), b.spec.width}, forward, forward}.of(SlotRows::own));
  if (b.spec.dropout > 0)
    slots.d_dropped = b.own_rows(unit, "d_dropped", b.spec.width, Phase::input, b.read_last(ends_trained));
  return slots;
}
}  // namespace

AttentionHalf::AttentionHalf(const Build& b, int unit, std::int64_t layer, const Between& between)
    : Unit(fmt::format("block.{}.attention", layer)),
      branch_(layout_, b, unit, block_names(b.spec, layer), between.dy_amax),
      slots_(half_slots(b, unit, between, b.trained().out)),
      forward_again_(b.recompute(unit).forward_again) {}

void AttentionHalf::forward(const Call& call) const {
  const Tensor branch = branch_.forward(slots_, call);
  if (!branch.none()) add({.y = call.at[slots_.between.y], .a = call.at[slots_.between.x], .b = branch}, call.stream);
}

void AttentionHalf::backward_input(const Call& call) const {
  const Call again = call.again();
  if (forward_again_) branch_.recompute(slots_, again);
  branch_.backward_input(slots_, again);
}

FeedForwardHalf::FeedForwardHalf(const Build& b, int unit, std::int64_t layer, const Between& between)
    : Unit(fmt::format("block.{}.feed-forward", layer)),
      branch_(layout_, b, unit, block_names(b.spec, layer), between.dy_amax),
      slots_(half_slots(b, unit, between, b.trained().down)),
      forward_again_(b.recompute(unit).forward_again) {}

void FeedForwardHalf::backward_input(const Call& call) const {
  const Call again = call.again();
  if (forward_again_) branch_.recompute(slots_, {}, again);
  branch_.backward_input(slots_, again);
}

}  // namespace lockstep
