#include "spec/run/lora_toml.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/text/text_input.h"
#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

namespace {

constexpr std::int64_t kMostRank = 1 << 20;
const Keys kAdapterKeys{"alpha", "targets", "base"};

// Reading and writing both walk this list.
template <class Spec, class Visitor>
void visit_lora(Spec& lora, Visitor&& visit) {
  visit("rank", lora.rank, Whole{0, kMostRank});
  if (!lora) return;
  visit("alpha", lora.alpha, Real{.least = 0, .most = 1e6, .above_least = true});
  visit("targets", lora.targets);
  if (!lora.base.empty()) visit("base", lora.base);
}

// One string may name several: q_proj, v_proj.
std::vector<std::string> split_at_commas(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts)
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      const std::string name = text.substr(at, end - at);
      const std::size_t first = std::min(name.find_first_not_of(' '), name.size());
      all.push_back(name.substr(first, name.find_last_not_of(' ') + 1 - first));
      at = end + 1;
    }
  return all;
}

}  // namespace

void read_lora(const TomlTable& table, LoraSpec& lora) {
  table.refuse_unknown(Keys{"rank"} + kAdapterKeys);
  table("rank", lora.rank, Whole{0, kMostRank});  // before the list, which depends on it
  for (const std::string_view key : kAdapterKeys)
    if (!lora && table.has(key))
      table.refuse(key, fmt::format("'{}' does nothing with rank = 0: there are no adapters", key),
                   "remove it, or give a rank, as in lora.rank=16");
  if (table.has("base")) table("base", lora.base);
  visit_lora(lora, table);
  lora.targets = split_at_commas(lora.targets);
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (!lora.base.empty() && (lora.base.size() != 16 || lora.base.find_first_not_of(kDigits) != lora.base.npos))
    table.refuse("base", fmt::format("{} is no fingerprint, of 16 hexadecimal digits", quote_text(lora.base)),
                 "leave it out: the run finds it and writes it down");
}

void write_lora(const LoraSpec& lora, TomlWriter& writer) { visit_lora(lora, writer); }

void unmake_lora_choices(TomlDocument& document) {
  if (!document.set("lora", "rank") || document.top().table("lora").shown("rank") != "0") return;
  for (const std::string_view key : kAdapterKeys) document.drop("lora", key);
}

}  // namespace lockstep
