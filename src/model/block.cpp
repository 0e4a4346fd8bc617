#include "model/block.h"

#include <fmt/format.h>

namespace lockstep {

Block::Block(const Build& b, int unit, std::int64_t layer, const Between& between)
    : Unit(fmt::format("block.{}", layer)),
      names_(block_names(b.spec, layer)),
      d_mid_amax_(
          b.feed_forward_hands_back(unit) ? gradient_amax_slot(b, "d_mid", unit, unit, Attention::ends_in_fp8(b)) : -1),
      attention_(layout_, b, unit, names_, d_mid_amax_),
      d_mid_(b.feed_forward_hands_back(unit)
                 ? b.own_rows(unit, "d_mid", b.spec.width, Phase::input, b.last_of_branch_gradient(b.trained().out))
                 : -1),
      mid_(b.own_rows(unit, "mid", b.spec.width, Phase::forward, read_by_norms(b), Half::first, read_in_half(b))),
      feed_forward_(layout_, b, unit, names_, between.dy_amax),
      of_attention_{.between = {.x = between.x,
                                .dx = between.dx,
                                .y = mid_,
                                .dy = d_mid_,
                                .dx_amax = between.dx_amax,
                                .dy_amax = d_mid_amax_}},
      of_feed_forward_{.between = {.x = mid_,
                                   .dx = d_mid_,
                                   .y = between.y,
                                   .dy = between.dy,
                                   .dx_amax = d_mid_amax_,
                                   .dy_amax = between.dy_amax}},
      forward_again_(b.recompute(unit).forward_again) {
  const std::int64_t C = b.spec.width;
  if (b.branches_stand_alone())  // one after the other
    of_attention_.alone = of_feed_forward_.alone = b.own_rows(unit, "branch", C, Phase::forward, Phase::forward);
  if (b.spec.dropout > 0) {
    of_attention_.d_dropped = b.own_rows(unit, "d_dropped1", C, Phase::input, b.read_last(b.trained().out));
    of_feed_forward_.d_dropped = b.own_rows(unit, "d_dropped2", C, Phase::input, b.read_last(b.trained().down));
  }
}

// The sum of both is mid, which the second norm forms if the first branch's last product did not.
FeedForwardBranch::Joining Block::attend(const Call& call) const {
  return {.residual = call.at[of_attention_.between.x], .branch = attention_.forward(of_attention_, call)};
}

void Block::forward(const Call& call) const { feed_forward_.forward(of_feed_forward_, attend(call), call); }

void Block::backward_input(const Call& call) const {
  const Call again = call.again();
  if (forward_again_) feed_forward_.recompute(of_feed_forward_, attend(again), again);
  feed_forward_.backward_input(of_feed_forward_, again);
  if (d_mid_ >= 0) attention_.backward_input(of_attention_, again);
}

void Block::backward_weight(const Call& call) const {
  const Call again = call.again();
  feed_forward_.backward_weight(of_feed_forward_, again);
  attention_.backward_weight(of_attention_, again);
}

}  // namespace lockstep
