#include "spec/step/laid_out_step.h"

#include "spec/layout/updates.h"

namespace lockstep {

StepShape laid_out(StepShape shape, const LayoutSpec& layout, const GatheredRoom& room) {
  shape.gathers = layout.cuts_weights() || room.offloaded;
  shape.publishes = !all_update_all(layout) && !shape.gathers;
  shape.reduces_each = layout.passes_on();
  if (!shape.gathers) return shape;
  shape.prefetch = static_cast<int>(layout.prefetch);
  if (layout.wrap != WrapRule{}) shape.bundles = bundles_of(layout.wrap, shape.stages, room.unit_bytes);
  std::int64_t left = room.kept_bytes;
  for (int u = shape.last() - 1; u >= 0; --u) {  // the last is used twice in a row, and stays anyway
    if (!shape.has(u)) continue;
    left -= room.unit_bytes[static_cast<std::size_t>(u)];
    if (left < 0 && layout.reshard == Reshard::forward) break;
    ++shape.kept_units;
  }
  return shape;
}

}  // namespace lockstep
