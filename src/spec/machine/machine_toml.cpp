// Machine files. One list of keys per table serves reading, writing and the hints for misspelt keys.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "spec/machine/machine_spec.h"
#include "spec/model/presets.h"
#include "spec/text/quantity.h"
#include "spec/text/text_input.h"
#include "spec/text/toml_amounts.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

std::string_view name_of(MachineSpec::Kind kind) { return kind == MachineSpec::Kind::devices ? "devices" : "threads"; }
static constexpr std::array<MachineSpec::Kind, 2> values_of(MachineSpec::Kind) {
  return {MachineSpec::Kind::devices, MachineSpec::Kind::threads};
}

namespace {

constexpr std::size_t kMachineTextLimit = 64 << 10;
constexpr double kMostBytes = 0x1p50;
constexpr double kSlowestRate = 1e3, kFastestRate = 1e16;

constexpr Amount share_up_to(double most) { return {.most = most, .above_least = true}; }
constexpr Amount kShare = share_up_to(1);
constexpr Amount kShareOfPeak = share_up_to(2);  // of a measured one: a curve's best may be above what was measured
constexpr Amount kBytes{.kind = QuantityKind::size, .least = 1, .most = kMostBytes};
constexpr Amount kSomeBytes{.kind = QuantityKind::size, .least = 1, .most = kMostBytes, .or_none = true};
constexpr Amount kRate{.kind = QuantityKind::rate, .least = kSlowestRate, .most = kFastestRate};
constexpr Amount kSomeRate{.kind = QuantityKind::rate, .least = kSlowestRate, .most = kFastestRate, .or_none = true};
constexpr Amount kSomeOperations{.kind = QuantityKind::operations, .least = 1e6, .most = 1e18, .or_none = true};
constexpr Amount kLatency{.kind = QuantityKind::time, .most = 1};
constexpr Amount kSomeLatency{.kind = QuantityKind::time, .most = 1, .or_none = true};
constexpr Amount kSomeSeconds{.kind = QuantityKind::time, .most = 1e6, .or_none = true};
constexpr Amount kHalf{.most = 1e6, .or_none = true};
constexpr Amount kScoreBytes{.most = 1e3, .or_none = true};

template <class Spec, class Visitor>
void visit_machine(Spec& m, Visitor&& visit) {
  visit("name", m.name);
  visit("source", m.source);
  visit("kind", m.kind);
  visit("nodes", m.nodes, Whole{1, 1 << 24});
  visit("devices_per_node", m.devices_per_node, Whole{1, 1 << 16});
  visit("memory", m.memory, kBytes);
  visit("launch", m.launch, kSomeSeconds);
  visit("step", m.step, kSomeSeconds);
  visit("overlap_slowdown", m.overlap_slowdown, Amount{.most = 10, .or_none = true});
  visit("spine_nodes", m.spine_nodes, Whole{0, 1 << 24});
  visit("oversubscription", m.oversubscription, Amount{.least = 1, .most = 1000});
  visit("sum_rate", m.sum_rate, kSomeRate);
  visit("copy_rate", m.copy_rate, kSomeRate);
  visit("host_memory", m.host_memory, kSomeBytes);
  visit("host_link", m.host_link, kSomeRate);
  visit("host_copy", m.host_copy, kSomeRate);
  visit("disk", m.disk, kSomeBytes);
  visit("disk_read", m.disk_read, kSomeRate);
  visit("disk_write", m.disk_write, kSomeRate);
  visit("hours_between_failures", m.hours_between_failures, Amount{.most = 1e9, .or_none = true});
  visit("restart_seconds", m.restart_seconds, kSomeSeconds);
}

template <class Spec, class Visitor>
void visit_peaks(Spec& peaks, Visitor&& visit) {
  visit("fp64", peaks.fp64, kSomeOperations);
  visit("fp32", peaks.fp32, kSomeOperations);
  visit("bf16", peaks.bf16, kSomeOperations);
  visit("fp16", peaks.fp16, kSomeOperations);
  visit("fp8", peaks.fp8, kSomeOperations);
}

template <class Spec, class Visitor>
void visit_products(Spec& products, Visitor&& visit) {
  visit("best", products.best, kShareOfPeak);
  visit("half_m", products.half_m, kHalf);
  visit("half_n", products.half_n, kHalf);
  visit("half_k", products.half_k, kHalf);
}

template <class Spec, class Visitor>
void visit_attention(Spec& attention, Visitor&& visit) {
  visit("forward", attention.forward, kShareOfPeak);
  visit("backward", attention.backward, kShareOfPeak);
  visit("half_pairs", attention.half_pairs, kHalf);
  visit("half_width", attention.half_width, kHalf);
  visit("forward_scores", attention.forward_scores, kScoreBytes);
  visit("backward_scores", attention.backward_scores, kScoreBytes);
}

template <class Spec, class Visitor>
void visit_machine_link(Spec& link, Visitor&& visit) {
  visit("bandwidth", link.bandwidth, kRate);
  visit("latency", link.latency, kLatency);
  visit("collective_latency", link.collective_latency, kSomeLatency);
  visit("efficiency", link.efficiency, kShare);
  visit("pair_efficiency", link.pair_efficiency, kShare);
  visit("both_ways", link.both_ways, kShare);
}

// Every table inside [machine] that is a list of keys.
template <class Spec, class Each>
void each_table(Spec& m, Each&& each) {
  each("peaks", m.peaks, [](auto& t, auto& visit) { visit_peaks(t, visit); });
  each("products", m.products, [](auto& t, auto& visit) { visit_products(t, visit); });
  each("attention", m.attention, [](auto& t, auto& visit) { visit_attention(t, visit); });
  each("intra_node", m.intra_node, [](auto& t, auto& visit) { visit_machine_link(t, visit); });
  each("inter_node", m.inter_node, [](auto& t, auto& visit) { visit_machine_link(t, visit); });
}

// A size as a key: no dot, which would be two keys.
std::string size_key(double size) {
  const auto bytes = static_cast<std::int64_t>(size);
  for (const auto& [shift, unit] : {std::pair{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}})
    if (bytes % (std::int64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  return fmt::format("{}", bytes);
}

std::vector<MachineSpec::CopyRate> read_copies(const TomlTable& table) {
  std::vector<MachineSpec::CopyRate> copies;
  std::map<double, std::string> keys;  // by size
  const AmountReader read(table);
  for (const std::string& key : table.keys()) {
    const bool digits = !key.empty() && key.find_first_not_of("0123456789") == key.npos;
    const double size = parse_quantity(digits ? key + "B" : key, QuantityKind::size).value_or(-1);
    if (!kBytes.takes(size) || size != std::floor(size))
      table.refuse(key, fmt::format("{} in [machine.copies] is no size", quote_text(key)),
                   "write whole bytes or a unit, as in 32KiB = \"40GB/s\"");
    const auto [before, is_new] = keys.emplace(size, key);
    if (!is_new)
      table.refuse(table.by_set(before->second) ? before->second : key,
                   fmt::format("the rate of {} is there twice", size_key(size)), "remove one of the two");
    copies.push_back({.size = size});
    read(key, copies.back().rate, kRate);
  }
  std::ranges::sort(copies, {}, &MachineSpec::CopyRate::size);
  return copies;
}

// What no list of keys says: fields that others need, and those that would do nothing.
void check_machine(const MachineSpec& m, const TomlTable& table, const std::string& place) {
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::usage, place + ": " + problem, remedy);
  };
  const MachineSpec::Peaks& peaks = m.peaks;
  if (std::max({peaks.fp64, peaks.fp32, peaks.bf16, peaks.fp16, peaks.fp8}) == 0)
    refuse("[machine.peaks] names no peak", "add one, as in bf16 = \"312TF\"");
  if (m.copies.empty()) refuse("[machine.copies] names no rate of a copy", "add one, as in 1GiB = \"2TB/s\"");
  const bool threads = m.kind == MachineSpec::Kind::threads;
  if (m.nodes > 1 && !table.has("inter_node"))
    refuse(fmt::format("{} nodes and no link between them", m.nodes), "set machine.inter_node.bandwidth as well");
  if (m.devices_per_node > 1 && !threads && !table.has("intra_node"))
    refuse(fmt::format("{} devices per node and no link between them", m.devices_per_node),
           "set machine.intra_node.bandwidth as well");
  if (m.devices_per_node > 1 && threads && (m.sum_rate == 0 || m.copy_rate == 0))
    refuse("threads that exchange messages have no sum_rate or no copy_rate", "set both");
  if (!threads && m.copy_rate > 0)
    refuse("copy_rate does nothing with kind = \"devices\", whose messages go over links", "remove it");
  if (m.oversubscription > 1 && m.spine_nodes == 0)
    refuse("oversubscription does nothing without spine_nodes, the nodes joined at full rate",
           "set machine.spine_nodes as well");
}

// `place`: what messages name for the machine as a whole.
MachineSpec machine_of(const TomlDocument& document, const std::string& where, const std::string& place) {
  document.top().refuse_unknown(std::array<std::string_view, 1>{"machine"});
  const TomlTable table = document.top().table("machine");
  if (!table.present()) throw UserError(ExitCode::usage, where + ": has no table [machine]", "add it");
  MachineSpec machine;
  Collect known;
  visit_machine(machine, known);
  Keys tables{"copies", "kernels"};
  each_table(machine, [&](std::string_view name, auto&, const auto&) { tables.push_back(name); });
  table.refuse_unknown(known.keys + tables);
  for (const char* key : {"devices_per_node", "memory", "peaks", "copies"}) table.require(key);

  machine.name = where.substr(0, where.ends_with(".toml") ? where.size() - 5 : where.npos);
  machine.name = std::filesystem::path(machine.name).filename().string();
  visit_machine(machine, AmountReader(table));
  each_table(machine, [&](std::string_view name, auto& fields, const auto& visit_all) {
    const TomlTable inner = table.table(name);
    Collect keys;
    visit_all(fields, keys);
    inner.refuse_unknown(keys.keys);
    if (inner.present() && name.ends_with("_node")) inner.require("bandwidth");
    const AmountReader reader(inner);
    visit_all(fields, reader);
  });
  const TomlTable kernels = table.table("kernels");
  kernels.refuse_unknown(kCopyLikeKernels);
  const AmountReader read_share(kernels);
  for (const std::string_view kind : kCopyLikeKernels)
    if (kernels.has(kind)) read_share(kind, machine.kernels[std::string(kind)], share_up_to(100));
  machine.copies = read_copies(table.table("copies"));
  check_machine(machine, table, place);
  return machine;
}

}  // namespace

MachineSpec parse_machine(std::string_view toml, const std::string& where) {
  return machine_of(TomlDocument(toml, where, kMachineTextLimit), where, where);
}

MachineSpec read_machine(const std::filesystem::path& file) {
  return parse_machine(read_text_file(file, kMachineTextLimit, ExitCode::usage), file.string());
}

void set_machine_fields(MachineSpec& machine, std::span<const std::string> settings) {
  std::vector<std::string> all;
  std::string place;
  for (const std::string& setting : settings) {
    all.push_back("machine." + setting);
    place += (place.empty() ? "--set " : " with --set ") + all.back().substr(0, 200);
  }
  const std::string where = "machine " + machine.name;
  machine = machine_of(TomlDocument(to_toml(machine), where, kMachineTextLimit, all), where, place);
}

void set_machine_field(MachineSpec& machine, std::string_view key, std::string_view value) {
  set_machine_fields(machine, std::array{fmt::format("{}={}", key, value)});
}

std::string to_toml(const MachineSpec& machine) {
  TomlWriter writer;
  const AmountWriter amounts(writer);
  writer.table("machine");
  visit_machine(machine, amounts);
  const bool threads = machine.kind == MachineSpec::Kind::threads;
  each_table(machine, [&](std::string_view name, const auto& fields, const auto& visit_all) {
    // A link that nothing uses and nobody has stated stays so: it is asked for when nodes are added.
    if ((name == "inter_node" && machine.nodes == 1 && machine.inter_node == MachineLink{}) ||
        (name == "intra_node" && (threads || machine.devices_per_node == 1) && machine.intra_node == MachineLink{}))
      return;
    writer.table(fmt::format("machine.{}", name));
    visit_all(fields, amounts);
  });
  writer.table("machine.copies");
  for (const MachineSpec::CopyRate& copy : machine.copies) amounts(size_key(copy.size), copy.rate, kRate);
  if (!machine.kernels.empty()) writer.table("machine.kernels");
  for (const auto& [kind, share] : machine.kernels) writer(kind, share);
  return std::move(writer).text();
}

std::vector<std::string> shipped_machines() {
  std::vector<std::string> names;
  for (const EmbeddedText& file : embedded_machines()) names.emplace_back(file.name);
  std::ranges::sort(names);
  return names;
}

std::optional<std::string> machine_place(const std::string& name_or_file, const std::filesystem::path& base_folder) {
  if (std::ranges::find(embedded_machines(), name_or_file, &EmbeddedText::name) != embedded_machines().end())
    return name_or_file;
  std::error_code error;
  const std::filesystem::path file = std::filesystem::absolute(base_folder / name_or_file, error).lexically_normal();
  const bool path = name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".toml");
  if (error || (!path && !std::filesystem::is_regular_file(file, error))) return std::nullopt;
  return file.string();
}

MachineSpec find_machine(const std::string& name_or_file) {
  for (const EmbeddedText& file : embedded_machines())
    if (file.name == name_or_file) return parse_machine(file.text, name_or_file);
  std::error_code none;
  if (std::filesystem::exists(name_or_file, none) || name_or_file.ends_with(".toml")) return read_machine(name_or_file);
  throw UserError(ExitCode::usage, fmt::format("there is no machine {}", quote_text(name_or_file)),
                  fmt::format("name a machine file or one of {}", fmt::join(shipped_machines(), ", ")));
}

}  // namespace lockstep
