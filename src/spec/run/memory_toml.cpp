#include "spec/run/memory_toml.h"

#include <algorithm>
#include <array>

#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

static constexpr std::array<Recompute, 3> values_of(Recompute) {
  return {Recompute::none, Recompute::elementwise, Recompute::projections};
}
static constexpr auto values_of(Offload) { return kOffloads; }

namespace {

constexpr std::int64_t kMostMebibytes = 1 << 30;

// Reading and writing both walk this list. Keys of a choice are visited only under it, so that a key which would do
// nothing is refused.
template <class Spec, class Visitor>
void visit_memory(Spec& memory, Visitor&& visit) {
  visit("gathered", memory.gathered, Whole{0, kMostMebibytes});
  visit("recompute", memory.recompute);
  if (memory.recompute == Recompute::projections)
    visit("recompute_blocks", memory.recompute_blocks, Whole{0, kMaxIndex});
  visit("offload_optimizer", memory.offload_optimizer);
  if (memory.offload_optimizer == Offload::none) return;
  visit("offload_share", memory.offload_share, Real{.least = 0, .most = 1, .above_least = true});
  visit("offload_window", memory.offload_window, Whole{1, kMostMebibytes});
  if (memory.offload_optimizer == Offload::disk) visit("offload_folder", memory.offload_folder);
}

}  // namespace

void read_memory(const TomlTable& table, MemorySpec& memory) {
  Collect known;
  MemorySpec all{.recompute = Recompute::projections, .offload_optimizer = Offload::disk};
  visit_memory(all, known);
  table.refuse_unknown(known.keys);
  table("recompute", memory.recompute);  // before the list, which depends on both
  table("offload_optimizer", memory.offload_optimizer);
  Collect used;
  visit_memory(memory, used);
  for (const std::string_view key : known.keys) {
    if (!table.has(key) || std::ranges::find(used.keys, key) != used.keys.end()) continue;
    const std::string_view without = key == "recompute_blocks" ? "recompute = \"projections\""
                                     : key == "offload_folder" ? "offload_optimizer = \"disk\""
                                                               : "offload_optimizer";
    table.refuse(key, fmt::format("'{}' does nothing without {}", key, without), "remove it");
  }
  visit_memory(memory, table);
}

void write_memory(const MemorySpec& memory, TomlWriter& writer) { visit_memory(memory, writer); }

void unmake_memory_choices(TomlDocument& document) {
  if (document.set("memory", "recompute")) document.drop("memory", "recompute_blocks");
  if (document.set("memory", "offload_optimizer"))
    for (const std::string_view key : {"offload_share", "offload_window", "offload_folder"})
      document.drop("memory", key);
}

}  // namespace lockstep
