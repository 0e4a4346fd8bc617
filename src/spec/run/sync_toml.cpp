#include "spec/run/sync_toml.h"

#include <fmt/format.h>

#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

static constexpr auto values_of(SyncKind) { return kSyncKinds; }
static constexpr auto values_of(OuterStep) { return kOuterSteps; }

namespace {

constexpr std::int64_t kMostBetween = 1'000'000'000'000;

constexpr const char* kNoBoundWord = "none";

const Keys kPartialKeys{"every", "outer"};
const Keys kNesterovKeys{"outer_lr", "outer_momentum"};
const Keys kMixedKeys{"group"};
const Keys kAsyncKeys{"staleness", "replay"};
const Keys kFeedbackKeys{"feedback"};

// Reading and writing both walk this list. Keys of a choice are visited only under it, so that a key which would do
// nothing is refused.
template <class Spec, class Visitor>
void visit_sync(Spec& sync, Visitor&& visit) {
  visit("kind", sync.kind);
  if (sync.takes_local_steps()) {
    visit("every", sync.every, Whole{1, kMostBetween});
    visit("outer", sync.outer);
    if (sync.outer == OuterStep::nesterov) {
      visit("outer_lr", sync.outer_lr, Real{.least = 0, .most = 10, .above_least = true});
      visit("outer_momentum", sync.outer_momentum, Real{.least = 0, .most = 1, .below_most = true});
    }
  }
  if (sync.kind == SyncKind::mixed) visit("group", sync.group, Whole{1, kMaxIndex});
  if (sync.kind == SyncKind::async) {
    if (std::string word = kNoBoundWord; sync.staleness == kNoStalenessBound)
      visit("staleness", word);
    else
      visit("staleness", sync.staleness, Whole{0, kMaxIndex});
    if (sync.is_asynchronous() && !sync.replay.empty()) visit("replay", sync.replay);
  }
  visit("compress", sync.compress);
  if (sync.compress) visit("feedback", sync.feedback);
  visit("compress_weights", sync.compress_weights);
  visit("compress_activations", sync.compress_activations);
}

}  // namespace

// A number, or that there is no bound.
static void read_staleness(const TomlTable& table, SyncSpec& sync) {
  const std::string none = fmt::format("'{}'", kNoBoundWord);
  const std::string shown = table.has("staleness") ? table.shown("staleness") : none;
  if (shown.starts_with("'") && shown != none)
    table.refuse("staleness", fmt::format("staleness = {} says nothing", shown),
                 fmt::format("name updates, as in 4, or \"{}\"", kNoBoundWord));
  sync.staleness = shown == none ? kNoStalenessBound : 0;  // it is read as a number
}

void read_sync(const TomlTable& table, SyncSpec& sync) {
  table.refuse_unknown(Keys{"kind", "compress", "compress_weights", "compress_activations"} + kPartialKeys +
                       kNesterovKeys + kMixedKeys + kAsyncKeys + kFeedbackKeys);
  table("kind", sync.kind);
  if (sync.kind == SyncKind::async) read_staleness(table, sync);
  // before the list, which depends on all of these
  table("outer", sync.outer);
  table("compress", sync.compress);
  const auto refuse_without = [&](const Keys& keys, std::string_view what) {
    for (const std::string_view key : keys)
      if (table.has(key)) table.refuse(key, fmt::format("'{}' does nothing without {}", key, what), "remove it");
  };
  if (!sync.takes_local_steps()) refuse_without(kPartialKeys, "kind = \"partial\" or \"mixed\"");
  if (!sync.takes_local_steps() || sync.outer != OuterStep::nesterov)
    refuse_without(kNesterovKeys, "outer = \"nesterov\"");
  if (sync.kind != SyncKind::mixed) refuse_without(kMixedKeys, "kind = \"mixed\"");
  if (sync.kind != SyncKind::async) refuse_without(kAsyncKeys, "kind = \"async\"");
  if (!sync.compress) refuse_without(kFeedbackKeys, "compress");
  table("replay", sync.replay);
  visit_sync(sync, table);
  if (sync.kind == SyncKind::async && !sync.is_asynchronous() && table.has("replay"))
    table.refuse("replay", "'replay' does nothing with staleness = 0: workers wait for each other", "remove it");
}

void write_sync(const SyncSpec& sync, TomlWriter& writer) { visit_sync(sync, writer); }

void unmake_sync_choices(TomlDocument& document) {
  const auto drop = [&](const Keys& keys) {
    for (const std::string_view key : keys) document.drop("sync", key);
  };
  if (document.set("sync", "kind")) drop(kPartialKeys + kNesterovKeys + kMixedKeys + kAsyncKeys);
  if (document.set("sync", "outer")) drop(kNesterovKeys);
  if (document.set("sync", "compress")) drop(kFeedbackKeys);
}

}  // namespace lockstep
