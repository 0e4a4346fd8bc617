#include "plan/smaller_layout.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plan/plan.h"
#include "plan/step_prediction.h"
#include "spec/run/run_extent.h"
#include "train/run_data.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

RunSpec with_layout(const RunSpec& run, const LayoutSpec& layout) {
  RunSpec changed = run;
  changed.layout = layout;
  return changed;
}

// With `uneven` where the batch does not divide; nothing where it is no run, or does not fit.
std::optional<LayoutSpec> checked(const RunSpec& run, LayoutSpec layout, std::int64_t rank_memory) {
  if (layout.dp < 1 || run.train.global_batch < layout.dp * layout.micro) return std::nullopt;
  if (run.train.global_batch % (layout.dp * layout.micro) != 0) layout.uneven = Switch::on;
  if (layout.shard > 0 && layout.replicas() % layout.shard != 0) layout.shard = 0;
  if (layout.dp == 1 && layout.dp_kind == DpKind::central) layout.dp_kind = DpKind::ddp;
  if (layout.servers > 0) layout.dp_kind = DpKind::ddp, layout.servers = 0;  // to the bit the same, on fewer ranks
  if (run.sync.takes_local_steps() && layout.dp != run.layout.dp) return std::nullopt;  // replicas have moments each
  const RunSpec changed = with_layout(run, layout);
  if (!is_possible(changed)) return std::nullopt;
  if (rank_memory > 0 && fullest(plan_stages(changed)).peak > rank_memory) return std::nullopt;
  return layout;
}

std::set<std::int64_t> sizes(std::int64_t own, std::int64_t most) {
  std::set<std::int64_t> all;
  for (std::int64_t size = 1; size <= most; size *= 2) all.insert(size);
  if (own <= most) all.insert(own);
  return all;
}

std::optional<LayoutSpec> fastest(const RunSpec& run, std::int64_t ranks, std::int64_t rank_memory) {
  if (run.layout.unflushed()) return std::nullopt;  // other stages would learn something else
  const MachineSpec machine = find_machine(!run.run.machine.empty()         ? run.run.machine
                                           : device_of(run) == Device::cuda ? "h200"
                                                                            : "laptop");
  const RunData data(run);
  std::optional<LayoutSpec> best;
  double least = 0;
  for (const std::int64_t pp : sizes(run.layout.pp, ranks))
    for (const std::int64_t cp : sizes(run.layout.cp, ranks / pp))
      for (const std::int64_t tp : sizes(run.layout.tp, ranks / (pp * cp))) {
        LayoutSpec layout = run.layout;
        layout.pp = pp;
        layout.cp = cp;
        layout.tp = tp;
        layout.sp = LayoutSpec::usual_sp(tp);
        layout.dp = ranks / (pp * cp * tp);
        layout.stages = {};
        if (pp != run.layout.pp) {  // another pipeline has other chunks, and nobody's own schedule fits
          layout.schedule = ScheduleKind::one_f_one_b;
          layout.chunks = usual_chunks(layout.schedule);
          layout.schedule_file.clear();
        }
        for (; layout.dp >= 1; --layout.dp) {
          const auto possible = checked(run, layout, rank_memory);
          if (!possible) continue;
          // The machine has as many devices as are asked about: which they are changes the order of layouts little.
          MachineSpec large = machine;
          large.nodes = std::max(large.nodes, (ranks + large.devices_per_node - 1) / large.devices_per_node);
          if (large.kind == MachineSpec::Kind::threads)  // on one node, with the cores of all
            large.devices_per_node *= std::exchange(large.nodes, 1);
          const RunSpec changed = with_layout(run, *possible);
          const double seconds = predict_step(changed, large, data, plan_stages(changed, data)).step_seconds;
          if (!best || seconds < least) {
            best = possible;
            least = seconds;
          }
          break;
        }
      }
  return best;
}

}  // namespace

std::optional<LayoutSpec> smaller_layout(const RunSpec& run, std::int64_t ranks, std::int64_t rank_memory) {
  LayoutSpec layout = run.layout;
  const std::int64_t own = run.layout.dp;
  for (layout.dp = std::min(own, ranks / (layout.pp * layout.cp * layout.tp)); layout.dp >= 1; --layout.dp)
    if (const auto same_axes = checked(run, layout, rank_memory)) return same_axes;
  return fastest(run, ranks, rank_memory);
}

}  // namespace lockstep
