#include "spec/run/sync_toml.h"

#include <fmt/format.h>

#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

static constexpr auto values_of(SyncKind) { return kSyncKinds; }
static constexpr auto values_of(OuterStep) { return kOuterSteps; }

namespace {

constexpr std::int64_t kMostBetween = 1'000'000'000'000;

const Keys kPartialKeys{"every", "outer"};
const Keys kNesterovKeys{"outer_lr", "outer_momentum"};
const Keys kMixedKeys{"group"};
const Keys kAsyncKeys{"staleness"};
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
  if (sync.kind == SyncKind::async) visit("staleness", sync.staleness, Whole{0, kMaxIndex});
  visit("compress", sync.compress);
  if (sync.compress) visit("feedback", sync.feedback);
  visit("compress_weights", sync.compress_weights);
  visit("compress_activations", sync.compress_activations);
}

}  // namespace

void read_sync(const TomlTable& table, SyncSpec& sync) {
  table.refuse_unknown(Keys{"kind", "compress", "compress_weights", "compress_activations"} + kPartialKeys +
                       kNesterovKeys + kMixedKeys + kAsyncKeys + kFeedbackKeys);
  table("kind", sync.kind);
  if (sync.kind == SyncKind::async)
    table.refuse("kind", "kind = 'async' is not in this version", "use 'full', 'partial' or 'mixed'");
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
  visit_sync(sync, table);
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
