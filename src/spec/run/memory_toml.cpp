#include "spec/run/memory_toml.h"

#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

static constexpr auto values_of(Recompute) { return kRecomputes; }
static constexpr auto values_of(Offload) { return kOffloads; }
static constexpr auto values_of(OffloadUpdate) { return kOffloadUpdates; }

namespace {

constexpr std::int64_t kMostMebibytes = 1 << 30;

// Of a level that recomputes products, of offloaded state and of offloaded activations.
const Keys kRecomputeKeys{"recompute_blocks", "recompute_every", "recompute_stages"};
const Keys kOffloadedKinds{"offload_optimizer", "offload_gradients", "offload_parameters"};
const Keys kOffloadKeys{"offload_share", "offload_window"};
const Keys kUpdateKeys{"offload_update"};
const Keys kActivationKeys{"offload_blocks"};

// Reading and writing both walk this list. Keys of a choice are visited only under it, so that a key which would do
// nothing is refused.
template <class Spec, class Visitor>
void visit_memory(Spec& memory, Visitor&& visit) {
  if (std::string word = "auto"; memory.gathered == kGatheredAuto)
    visit("gathered", word);
  else
    visit("gathered", memory.gathered, Whole{0, kMostMebibytes});
  visit("recompute", memory.recompute);
  if (recomputes_products(memory.recompute)) {
    visit("recompute_every", memory.recompute_every, Whole{1, kMaxIndex});
    if (!memory.recompute_stages.empty())
      visit("recompute_stages", memory.recompute_stages);
    else
      visit("recompute_blocks", memory.recompute_blocks, Whole{0, kMaxIndex});
  }
  visit("offload_optimizer", memory.offload_optimizer);
  visit("offload_gradients", memory.offload_gradients);
  visit("offload_parameters", memory.offload_parameters);
  if (memory.offloads_state()) {
    visit("offload_share", memory.offload_share, Real{.least = 0, .most = 1, .above_least = true});
    visit("offload_window", memory.offload_window, Whole{1, kMostMebibytes});
  }
  if (memory.offload_optimizer == Offload::host) visit("offload_update", memory.offload_update);
  visit("offload_activations", memory.offload_activations);
  if (memory.offload_activations != Offload::none) visit("offload_blocks", memory.offload_blocks, Whole{0, kMaxIndex});
  if (memory.offloads_to() == Offload::disk) visit("offload_folder", memory.offload_folder);
}

}  // namespace

void read_memory(const TomlTable& table, MemorySpec& memory) {
  table.refuse_unknown(Keys{"gathered", "recompute", "offload_activations", "offload_folder"} + kOffloadedKinds +
                       kRecomputeKeys + kOffloadKeys + kUpdateKeys + kActivationKeys);
  table("recompute", memory.recompute);  // before the list, which depends on all of these
  table("offload_optimizer", memory.offload_optimizer);
  table("offload_gradients", memory.offload_gradients);
  table("offload_parameters", memory.offload_parameters);
  table("offload_activations", memory.offload_activations);
  if (const std::string shown = table.has("gathered") ? table.shown("gathered") : ""; shown == "'auto'")
    memory.gathered = kGatheredAuto;
  else if (shown.starts_with("'"))
    table.refuse("gathered", fmt::format("gathered = {} says nothing", shown), "name MiB, as in 64, or use \"auto\"");
  const auto refuse_without = [&](const Keys& keys, std::string_view what) {
    for (const std::string_view key : keys)
      if (table.has(key)) table.refuse(key, fmt::format("'{}' does nothing without {}", key, what), "remove it");
  };
  if (!recomputes_products(memory.recompute)) refuse_without(kRecomputeKeys, "recompute = \"projections\" or \"full\"");
  if (table.has("recompute_blocks") && table.has("recompute_stages"))
    table.refuse("recompute_blocks", "'recompute_blocks' is of the model and 'recompute_stages' of each of its stages",
                 "keep one of the two");
  if (table.has("recompute_stages")) table("recompute_stages", memory.recompute_stages);
  if (!memory.offloads_state())
    refuse_without(kOffloadKeys, "offload_optimizer, offload_gradients or offload_parameters");
  if (memory.offload_activations == Offload::none) refuse_without(kActivationKeys, "offload_activations");
  if (memory.offloads_to() != Offload::disk)
    refuse_without({"offload_folder"}, "something that is offloaded to a disk");
  if (memory.offload_optimizer != Offload::host) refuse_without(kUpdateKeys, "offload_optimizer = \"host\"");
  visit_memory(memory, table);
}

void write_memory(const MemorySpec& memory, TomlWriter& writer) { visit_memory(memory, writer); }

void unmake_memory_choices(TomlDocument& document) {
  const auto drop = [&](const Keys& keys) {
    for (const std::string_view key : keys) document.drop("memory", key);
  };
  if (document.set("memory", "recompute")) drop(kRecomputeKeys);
  if (document.set("memory", "recompute_stages")) drop({"recompute_blocks"});
  if (document.set("memory", "recompute_blocks")) drop({"recompute_stages"});
  for (const std::string_view kind : kOffloadedKinds)
    if (document.set("memory", kind)) drop(kOffloadKeys + kUpdateKeys + Keys{"offload_folder"});
  if (document.set("memory", "offload_activations")) drop(kActivationKeys + Keys{"offload_folder"});
}

}  // namespace lockstep
