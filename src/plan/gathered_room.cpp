#include "plan/gathered_room.h"

#include <vector>

#include "base/integers.h"
#include "model/model.h"
#include "parallel/zero_shards.h"
#include "plan/plan.h"
#include "spec/layout/shard.h"
#include "train/run_data.h"

namespace lockstep {

namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

// Room for the last unit but one, for it and the one before it, and so on. A stage of a pipeline ends with a block or
// the head, so that room for this many units is about room for as many of its own.
std::vector<std::int64_t> rooms_of(const RunSpec& spec) {
  const DType compute = storage_types(spec.precision).compute;
  const Model model(
      spec.model, 1, 1, compute,
      {.split = spec.layout.tensor_split(0), .halves = spec.layout.wrap.is_of_halves(), .lora = spec.lora});
  const Shard shard{.index = 0, .count = spec.layout.shards()};
  std::vector<std::int64_t> rooms{0};
  std::int64_t bytes = 0;
  for (int u = model.units() - 2; u >= 0; --u) {
    const UnitLayout& layout = model.unit(u).layout();
    bytes += (shard.padded(layout.owned()) + shard.padded(layout.frozen())) * size_of(compute);
    rooms.push_back(ceil_div(bytes, kMebibyte));
  }
  return rooms;
}

}  // namespace

void resolve_gathered(RunSpec& spec, std::int64_t available) {
  if (spec.memory.gathered != kGatheredAuto) return;
  spec.memory.gathered = 0;
  if (!spec.layout.cuts_weights()) return;
  const RunData data(spec);
  const auto fits = [&](std::int64_t room) {
    RunSpec tried = spec;
    tried.memory.gathered = room;
    const std::vector<Plan> stages = plan_stages(tried, data);
    return fullest(stages).peak + fullest(stages).outside <= available;
  };
  const std::vector<std::int64_t> rooms = rooms_of(spec);
  std::size_t most = 0, end = rooms.size();  // the first fits, or nothing does
  while (end - most > 1) {
    const std::size_t middle = most + (end - most) / 2;
    (fits(rooms[middle]) ? most : end) = middle;
  }
  spec.memory.gathered = rooms[most];
}

}  // namespace lockstep
