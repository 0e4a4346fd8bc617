#include "spec/run/sparsity_toml.h"

#include <fmt/format.h>

#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

static constexpr auto values_of(SparsityKind) { return kSparsityKinds; }
static constexpr auto values_of(SparsitySchedule) { return kSparsitySchedules; }

namespace {

constexpr std::int64_t kMostMaskSteps = 1'000'000'000'000;

const Keys kGrowthKeys{"begin", "end", "every", "schedule"};
const Keys kShareKeys{"share"};

// Reading and writing both walk this list. A key that would do nothing under the kind is not in it.
template <class Spec, class Visitor>
void visit_sparsity(Spec& sparsity, Visitor&& visit) {
  visit("kind", sparsity.kind);
  if (!sparsity) return;
  if (sparsity.kind == SparsityKind::unstructured)
    visit("share", sparsity.share, Real{.least = 0, .most = 1, .above_least = true, .below_most = true});
  visit("begin", sparsity.begin, Whole{0, kMostMaskSteps});
  visit("end", sparsity.end, Whole{1, kMostMaskSteps});
  visit("every", sparsity.every, Whole{1, kMostMaskSteps});
  visit("schedule", sparsity.schedule);
}

}  // namespace

void read_sparsity(const TomlTable& table, SparsitySpec& sparsity) {
  table.refuse_unknown(Keys{"kind"} + kShareKeys + kGrowthKeys);
  table("kind", sparsity.kind);  // before the list, which depends on it
  for (const std::string_view key : kShareKeys + kGrowthKeys)
    if (!sparsity && table.has(key))
      table.refuse(key, fmt::format("'{}' does nothing without kind = \"unstructured\" or \"2:4\"", key), "remove it");
  for (const std::string_view key : kShareKeys)
    if (sparsity.kind == SparsityKind::two_of_four && table.has(key))
      table.refuse(key, "2:4 masks half of each matrix: 'share' does nothing", "remove it, or use kind=unstructured");
  if (sparsity && !table.has("end"))
    table.refuse("kind", "a mask grows until step 'end', which is not given",
                 "name the last mask step, as in sparsity.end=1000");
  visit_sparsity(sparsity, table);
}

void write_sparsity(const SparsitySpec& sparsity, TomlWriter& writer) { visit_sparsity(sparsity, writer); }

void unmake_sparsity_choices(TomlDocument& document) {
  if (!document.set("sparsity", "kind")) return;
  const bool none = document.top().table("sparsity").shown("kind") == "'none'";
  for (const std::string_view key : kShareKeys) document.drop("sparsity", key);
  for (const std::string_view key : kGrowthKeys)
    if (none) document.drop("sparsity", key);
}

}  // namespace lockstep
