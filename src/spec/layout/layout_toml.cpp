#include "spec/layout/layout_toml.h"

#include <algorithm>
#include <iterator>

#include "spec/text/text_input.h"
#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

// Found by their arguments, so not in the unnamed namespace.
static constexpr auto values_of(Switch) { return kSwitches; }
static constexpr auto values_of(CpOrder) { return kCpOrders; }
static constexpr auto values_of(DpKind) { return kDpKinds; }
static constexpr auto values_of(GradSync) { return kGradSyncs; }
static constexpr auto values_of(Reshard) { return kReshards; }
static constexpr auto values_of(EmbeddingGradient) { return kEmbeddingGradients; }
static constexpr auto values_of(ReduceKind) { return kReduceKinds; }
static constexpr auto values_of(ScheduleKind) { return kAllScheduleKinds; }

namespace {

constexpr std::size_t kLayoutTextLimit = 64 << 10;
constexpr std::int64_t kMostRanks = 1'000'000;
constexpr std::int64_t kMostChunks = 1024;
constexpr std::int64_t kMostStages = kMaxLayers;  // and chunks of one
constexpr std::int64_t kMostBucketMebibytes = 1 << 20;

// Keys and values travel, so the order of tokens matters.
bool turns(const LayoutSpec& layout) { return layout.cp > 1 && layout.cp_kind.factors(layout.cp).ring > 1; }

// The keys that act: reading and writing both walk this list.
template <class Spec, class Visitor>
void visit_layout(Spec& layout, Visitor&& visit) {
  visit("dp", layout.dp, Whole{1, kMostRanks});
  if (layout.dp_kind != DpKind::central) {
    visit("pp", layout.pp, Whole{1, kMostStages});
    if (layout.schedule_file.empty())
      visit("schedule", layout.schedule);
    else
      visit("schedule_file", layout.schedule_file);
    visit("chunks", layout.chunks, Whole{1, kMostStages});
    if (layout.pp * layout.chunks > 1) visit("stages", layout.stages);
    visit("cp", layout.cp, Whole{1, kMostRanks});
    if (layout.cp > 1) visit("cp_kind", layout.cp_kind);
    if (turns(layout)) visit("cp_order", layout.cp_order);
    visit("tp", layout.tp, Whole{1, kMostRanks});
    visit("sp", layout.sp);
    if (layout.tp > 1) visit("tp_chunks", layout.tp_chunks, Whole{1, kMostChunks});
  }
  visit("micro", layout.micro, Whole{1, kMaxIndex});
  visit("dp_kind", layout.dp_kind);
  if (layout.dp_kind == DpKind::server) {
    visit("servers", layout.servers, Whole{1, kMostRanks});
    visit("overlap", layout.overlap);
  }
  if (layout.dp_kind == DpKind::ddp) {
    visit("zero", layout.zero, Whole{0, 3});
    visit("grad_sync", layout.grad_sync);
    visit("overlap", layout.overlap);
    if (layout.zero == 0 && layout.grad_sync == GradSync::step)
      visit("bucket", layout.bucket, Whole{0, kMostBucketMebibytes});
    if (layout.grad_sync == GradSync::step) visit("embedding_gradient", layout.embedding_gradient);
    if (layout.zero > 0) visit("shard", layout.shard, Whole{0, kMostRanks});
    if (layout.zero == 3) {
      visit("reshard", layout.reshard);
      visit("prefetch", layout.prefetch, Whole{0, kMaxLayers});
      visit("wrap", layout.wrap);
    }
  }
  visit("uneven", layout.uneven);
  visit("reduce", layout.reduce);
}

bool contains(const Keys& keys, std::string_view key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); }

}  // namespace

void read_layout(const TomlTable& table, LayoutSpec& layout) {
  Collect known;
  for (const LayoutSpec& any : {LayoutSpec{.cp = 2, .tp = 2}, LayoutSpec{.zero = 3},
                                LayoutSpec{.pp = 2, .schedule_file = "any"}, LayoutSpec{.dp_kind = DpKind::server}})
    visit_layout(any, known);
  table.refuse_unknown(known.keys);
  table("dp_kind", layout.dp_kind);  // before the list, which depends on these
  table("zero", layout.zero, Whole{0, 3});
  table("tp", layout.tp, Whole{1, kMostRanks});
  table("cp", layout.cp, Whole{1, kMostRanks});
  if (layout.dp_kind != DpKind::central && layout.cp > 1) table("cp_kind", layout.cp_kind);
  table("schedule", layout.schedule);
  table("schedule_file", layout.schedule_file);
  if (table.has("schedule") && table.has("schedule_file"))
    table.refuse("schedule_file", "'schedule' and 'schedule_file' both name a schedule", "remove one of them");
  layout.chunks = layout.schedule_file.empty() ? usual_chunks(layout.schedule) : 1;
  table("pp", layout.pp, Whole{1, kMostStages});
  table("chunks", layout.chunks, Whole{1, kMostStages});
  layout.sp = LayoutSpec::usual_sp(layout.tp);
  layout.grad_sync = LayoutSpec::usual_sync(layout.zero);
  table("grad_sync", layout.grad_sync);
  if (layout.dp_kind == DpKind::server) layout.servers = layout.line();
  Collect used;
  visit_layout(layout, used);
  for (const std::string_view key : known.keys) {
    if (!table.has(key) || contains(used.keys, key)) continue;
    const bool ddp = layout.dp_kind == DpKind::ddp && key != "servers", meshed = layout.dp_kind != DpKind::central;
    const bool of_tp = key == "tp_chunks", of_cp = key.starts_with("cp_");
    table.refuse(key,
                 meshed && of_tp ? fmt::format("'{}' does nothing with tp = {}", key, layout.tp)
                 : meshed && of_cp && layout.cp > 1
                     ? fmt::format("'{}' does nothing with cp_kind = \"{}\"", key, layout.cp_kind.text())
                 : meshed && of_cp           ? fmt::format("'{}' does nothing with cp = {}", key, layout.cp)
                 : meshed && key == "stages" ? std::string("'stages' does nothing where the model is one part")
                 : ddp ? fmt::format("'{}' does nothing with zero = {} and grad_sync = \"{}\"", key, layout.zero,
                                     name_of(layout.grad_sync))
                       : fmt::format("'{}' does nothing with dp_kind = \"{}\"", key, name_of(layout.dp_kind)),
                 "remove it");
  }
  visit_layout(layout, table);
  if (layout.tp == 1 && layout.sp == Switch::on) table.refuse("sp", "'sp' does nothing with tp = 1", "remove it");
}

void write_layout(const LayoutSpec& layout, TomlWriter& writer) { visit_layout(layout, writer); }

void unmake_layout_choices(TomlDocument& document) {
  const auto drop = [&](std::string_view choice, std::initializer_list<std::string_view> keys) {
    if (!document.set("layout", choice)) return;
    for (const std::string_view key : keys) document.drop("layout", key);
  };
  drop(
      "dp_kind",
      {"pp",       "schedule",  "schedule_file",     "chunks", "stages",    "cp",      "cp_kind", "cp_order", "tp",
       "sp",       "tp_chunks", "servers",           "zero",   "grad_sync", "overlap", "bucket",  "shard",    "reshard",
       "prefetch", "wrap",      "embedding_gradient"});
  drop("pp", {"stages"});
  drop("schedule", {"chunks", "schedule_file", "stages"});
  drop("schedule_file", {"chunks", "schedule", "stages"});
  drop("chunks", {"stages"});
  drop("cp", {"cp_kind", "cp_order"});
  drop("cp_kind", {"cp_order"});
  drop("tp", {"sp", "tp_chunks"});
  drop("zero", {"grad_sync", "bucket", "embedding_gradient", "shard", "reshard", "prefetch", "wrap"});
  drop("grad_sync", {"bucket", "embedding_gradient"});
}

std::vector<TomlItem> layout_items(std::string_view text) {
  std::vector<TomlItem> items;
  const auto fail = [&](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::usage, fmt::format("--layout {}: {}", quote_text(text), problem), remedy);
  };
  if (text.size() > kLayoutTextLimit) fail("longer than a layout can be", "put it into the run file");
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0)
      fail(fmt::format("{} names no key and value", quote_text(item)), "write it as in --layout dp=2,micro=4");
    const std::string key(item.substr(0, equals)), value(item.substr(equals + 1));
    if (!is_plain_text(item) || key.find('.') != std::string::npos)
      fail(fmt::format("{} is not the name of a key and its value", quote_text(item)),
           "write it as in --layout dp=2,micro=4");
    if (std::ranges::find(items, key, &TomlItem::key) != items.end())
      fail(fmt::format("it names {} twice", quote_text(key)), "keep one of the two");
    items.push_back({key, value});
    at = comma + 1;
  }
  return items;
}

LayoutSpec parse_layout(std::string_view text, std::span<const std::string> sets) {
  std::vector<std::string> own;
  std::ranges::copy_if(sets, std::back_inserter(own), sets_layout);
  TomlDocument document("", "--layout", kLayoutTextLimit, own);
  document.replace("layout", "--layout", layout_items(text));
  unmake_layout_choices(document);
  LayoutSpec layout;
  read_layout(document.top().table("layout"), layout);
  return layout;
}

bool sets_layout(const std::string& set) { return set.starts_with("layout."); }

}  // namespace lockstep
