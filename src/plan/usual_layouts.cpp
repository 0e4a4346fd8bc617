#include "plan/comparison.h"

namespace lockstep {

namespace {

// The divisor next to the root: a copy is sharded over this many ranks, and there are several copies.
std::optional<std::int64_t> hybrid_shard(std::int64_t ranks) {
  std::optional<std::int64_t> shard;
  for (std::int64_t d = 2; d * d <= ranks; ++d)
    if (ranks % d == 0) shard = d;
  return shard;
}

bool can_be_cut(const RunSpec& run, const LayoutSpec& layout) {
  bool can = true;
  check_model_layout(run.model, run.data.seq, layout,
                     [&](std::string_view, const std::string&, const std::string&) { can = false; });
  return can;
}

}  // namespace

std::vector<LayoutSpec> usual_layouts(const RunSpec& run, std::int64_t ranks) {
  const LayoutSpec& base = run.layout;
  const LayoutSpec plain{.dp = ranks, .micro = base.micro, .uneven = base.uneven, .reduce = base.reduce};
  if (ranks == 1) return {plain};
  std::vector<LayoutSpec> all;
  const auto add = [&](auto&& change) { change(all.emplace_back(plain)); };
  add([](LayoutSpec& l) { l.dp_kind = DpKind::central; });
  add([](LayoutSpec& l) { l.overlap = Switch::off; });
  add([](LayoutSpec&) {});
  for (const std::int64_t zero : {1, 2, 3})
    for (const GradSync sync : {GradSync::step, GradSync::micro})
      add([&](LayoutSpec& l) {
        l.zero = zero;
        l.grad_sync = sync;
      });
  const LayoutSpec three = all.back();
  all.push_back(three);
  all.back().reshard = Reshard::never;
  if (const auto shard = hybrid_shard(ranks)) {
    all.push_back(three);
    all.back().shard = *shard;
  }
  const auto add_cut = [&](std::int64_t tp, Switch sp) {
    LayoutSpec cut = plain;
    cut.dp = ranks / tp;
    cut.tp = tp;
    cut.sp = sp;
    if (ranks % tp == 0 && can_be_cut(run, cut)) all.push_back(cut);
  };
  add_cut(ranks, Switch::on);
  add_cut(ranks, Switch::off);
  if (ranks >= 4) add_cut(2, Switch::on);
  for (const CpKind& kind : {kRing, kUlysses}) {
    LayoutSpec cut = plain;
    cut.dp = 1;
    cut.cp = ranks;
    cut.cp_kind = kind;
    if (can_be_cut(run, cut)) all.push_back(cut);
  }
  for (const ScheduleKind kind : kScheduleKinds) {
    if (base.micro == 1) break;  // one stage would work at a time
    LayoutSpec deep = plain;
    deep.dp = 1;
    deep.pp = ranks;
    deep.schedule = kind;
    deep.chunks = usual_chunks(kind);
    if (can_be_cut(run, deep)) all.push_back(deep);
  }
  return all;
}

}  // namespace lockstep
