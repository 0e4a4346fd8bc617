#include "cli/plan_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/text_table.h"
#include "parallel/embedding_rows.h"
#include "parallel/weight_versions.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {
std::string row(std::string_view name, const std::string& text) { return fmt::format("{:<12} {}\n", name, text); }

// What the rank sends in a step; nothing where it is alone.
std::int64_t stashed_bytes(const Plan& plan) {
  std::int64_t bytes = 0;
  for (const auto& [key, count] : plan.rows)
    if (key.first == Tag::parameter && key.second.ends_with(WeightVersions::kRow)) bytes += count.peak;
  return bytes;
}

std::string message_rows(const Plan& plan) {
  const SentMessages all = plan.messages.total(), &numbers = plan.messages.numbers;
  if (all.calls + numbers.calls == 0) return "";
  const auto psi = [&](std::int64_t elements) {
    return static_cast<double>(elements) / static_cast<double>(plan.stored);
  };
  const bool by_axis = plan.messages.of_several_axes();
  const auto line = [&](const std::string& name, std::string_view type, const std::string& multiple,
                        const SentMessages& of) {
    return fmt::format("  {:<{}} {:<5} {:>9} {:>20} {:>10}  in {}\n", name, by_axis ? 17 : 14, type, multiple,
                       grouped_digits(of.sent), byte_text(of.bytes_sent), grouped_digits(of.calls));
  };
  std::string out = row("messages", fmt::format("{:.3f} Ψ = {} elements = {} sent per step, by rank {}", psi(all.sent),
                                                grouped_digits(all.sent), byte_text(all.bytes_sent), plan.rank));
  for (const auto& [op, dtype, of, axis] : plan.messages.tensors)
    out += line(by_axis ? fmt::format("{} {}", name_of(axis), name_of(op)) : std::string(name_of(op)), name_of(dtype),
                fmt::format("{:.3f} Ψ", psi(of.sent)), of);
  if (numbers.calls > 0) out += line("numbers", "", "", numbers);
  return out;
}

// How many rows of the embedding's gradient are summed; nothing where all are.
std::string embedding_row(const RunSpec& spec) {
  const LayoutSpec& layout = spec.layout;
  if (layout.embedding_gradient == EmbeddingGradient::dense || layout.replicas() == 1) return "";
  if (spec.model.tied) return row("embedding", "all rows are summed: those of a tied table all have a gradient");
  const std::int64_t all = spec.model.vocabulary;
  const EmbeddingRows::Options options{
      .form = layout.embedding_gradient,
      .rows = Part::whole(all),
      .width = spec.model.width,
      .most_tokens = spec.train.global_batch * spec.data.seq,
      .beside = layout.shards() > 1 && spec.model.positions == PositionKind::learned ? spec.model.max_positions : 0};
  const std::int64_t most = EmbeddingRows::most_rows(options);
  const bool falls_back = most < std::min(all, options.most_tokens);
  return row("embedding",
             fmt::format("at most {} of {} rows are summed per step{}", grouped_digits(most), grouped_digits(all),
                         falls_back ? "; all, as counted here, where more occur" : ""));
}

}  // namespace

std::string plan_table(const RunSpec& spec, const Plan& plan) {
  const ModelSpec& m = spec.model;
  std::string out = row("model", fmt::format("{}: {} layers of {}, {} heads ({} for keys and values) of {}, "
                                             "feed-forward {}, vocabulary {}",
                                             name_of(m.family), m.layers, m.width, m.heads, m.kv_heads, m.head_width,
                                             m.ffn_width, grouped_digits(m.vocabulary)));
  out += row("parameters",
             fmt::format("{} ({}{}; {} stored{})", grouped_digits(plan.parameters),
                         count_text(static_cast<double>(plan.parameters)),
                         plan.adapters > 0 ? fmt::format(") frozen, {} of adapters ({}", grouped_digits(plan.adapters),
                                                         count_text(static_cast<double>(plan.adapters)))
                                           : "",
                         grouped_digits(plan.stored),
                         spec.layout.pp > 1 ? fmt::format(", {} by rank {}", grouped_digits(plan.layer_part), plan.rank)
                         : spec.layout.tp > 1 ? fmt::format(", {} by each of {} tensor-parallel ranks",
                                                            grouped_digits(plan.layer_part), spec.layout.tp)
                                              : ""));
  out += row("a step", fmt::format("{} samples of {}{} tokens = {} tokens, in {} micro-batch{}; {}",
                                   spec.train.global_batch, spec.data.documents == Documents::varlen ? "at most " : "",
                                   spec.data.seq, grouped_digits(plan.tokens_a_step), spec.layout.micro,
                                   spec.layout.micro == 1 ? "" : "es", name_of(spec.precision.compute)));
  for (const SourceUse& use : plan.sources)
    out += row("source", fmt::format("{}: {:.2f} % of the run's samples, {} = {:.2f} epochs of {}{}", use.name,
                                     use.share * 100, grouped_digits(use.used), use.epochs, grouped_digits(use.samples),
                                     use.evaluation > 0 ? fmt::format(", and {} for evaluation", use.evaluation) : ""));
  out += row("work", fmt::format("{}FLOP of the model, {}FLOP executed per step{}", count_text(plan.model_flops),
                                 count_text(static_cast<double>(plan.executed.flops)),
                                 spec.layout.pp > 1 || spec.layout.servers > 0 ? fmt::format(" by rank {}", plan.rank)
                                 : spec.layout.ranks() > 1 ? fmt::format(" by each of {} ranks", spec.layout.ranks())
                                                           : ""));
  out += row("memory", fmt::format("{} = {} bytes at most{}", byte_text(plan.peak), grouped_digits(plan.peak),
                                   spec.layout.pp > 1 || spec.layout.servers > 0
                                       ? fmt::format(", of rank {}, which needs most", plan.rank)
                                   : spec.layout.ranks() > 1 ? ", of each rank"
                                                             : ""));
  for (int t = 0; t < kTags; ++t)
    if (plan.peaks[t] > 0)
      out += fmt::format("  {:<12} {:>10}  {:>20}\n", name_of(static_cast<Tag>(t)), byte_text(plan.peaks[t]),
                         grouped_digits(plan.peaks[t]));
  if (const std::int64_t stashed = stashed_bytes(plan); stashed > 0)
    out += row("stashed", fmt::format("{} = {} of the parameters: earlier versions of the weights", byte_text(stashed),
                                      grouped_digits(stashed)));
  if (plan.outside > 0) out += row("", fmt::format("and about {} of driver and libraries", byte_text(plan.outside)));
  if (plan.host > 0) out += row("", fmt::format("and {} on the host", byte_text(plan.host)));
  if (plan.disk > 0) out += row("", fmt::format("and {} on the disk", byte_text(plan.disk)));
  if (plan.copies.folder > 0)
    out += row("copies", fmt::format("under launch {} of the host's memory for each rank, where they fit: {} of the "
                                     "state, two generations, and {} to snapshot it",
                                     byte_text(plan.copies.folder + plan.copies.process), byte_text(plan.copies.folder),
                                     byte_text(plan.copies.process)));
  if (plan.moved.from_device > 0) {
    const bool even = plan.moved.to_device == plan.moved.from_device;
    const std::string back = even ? "as much" : byte_text(plan.moved.from_device);
    const bool assumes =
        spec.memory.offload_optimizer == Offload::host && spec.memory.offload_update == OffloadUpdate::choose;
    out += row("offload", fmt::format("{} per step to the device, and {} back{}", byte_text(plan.moved.to_device), back,
                                      assumes ? "; offload_update = \"auto\" is counted as \"device\"" : ""));
  }
  if (plan.moved_activations > 0)
    out += row("activations",
               fmt::format("{} per step from the device, and as much back", byte_text(plan.moved_activations)));
  out += message_rows(plan);
  out += embedding_row(spec);
  if (const SentMessages all = plan.synchronization.total(); all.calls > 0)
    out += row("synchronized", fmt::format("{:.3f} Ψ = {} elements = {} more every {} steps, when replicas agree",
                                           static_cast<double>(all.sent) / static_cast<double>(plan.stored),
                                           grouped_digits(all.sent), byte_text(all.bytes_sent), spec.sync.every));
  if (!plan.relayouts.empty()) {
    const Relayout &first = plan.relayouts.front(), &last = plan.relayouts.back();
    const std::string after = plan.exact_relayouts ? grouped_digits(last.after)
                                                   : fmt::format("about {}, at most {},", grouped_digits(last.evenly),
                                                                 grouped_digits(last.after));
    out += row("sparsity", fmt::format("optimizer state {} before the mask step after {} steps, {} after the last one "
                                       "after {}, with {:.4g} of the blocks' matrices masked",
                                       grouped_digits(first.before), first.steps, after, last.steps, last.share));
  }
  if (spec.sync.is_asynchronous())
    out +=
        row("asynchronous",
            fmt::format("{} updates per step, each of one worker's gradient; messages are of a worker that makes one",
                        spec.layout.dp));
  out.pop_back();
  return out;
}

std::string stage_table(const std::vector<Plan>& plans) {
  const bool serves = plans.back().serves, piped = plans.size() > (serves ? 2U : 1U);
  TextTable table{
      .title = fmt::format("{}{}, by their first rank", piped ? "stages of the pipeline" : "ranks that compute",
                           serves ? ", and parameter servers" : ""),
      .heads = {"units", "parameters", "memory", "activations", "FLOP", "sent"},
      .rows = {}};
  for (const Plan& plan : plans)
    table.rows.push_back(
        {plan.units, grouped_digits(plan.layer_part), byte_text(plan.peak), byte_text(plan.peak_of(Tag::activation)),
         count_text(static_cast<double>(plan.executed.flops)), byte_text(plan.messages.total().bytes_sent)});
  return table.plain();
}

std::string unit_table(const Plan& plan) {
  std::vector<Tag> tags;
  for (int t = 0; t < kTags; ++t)
    if (plan.peaks[t] > 0) tags.push_back(static_cast<Tag>(t));
  std::vector<std::string> units;
  std::map<std::string, std::map<Tag, std::int64_t>> bytes;
  for (const auto& [key, count] : plan.rows) {
    if (!bytes.contains(key.second)) units.push_back(key.second);
    bytes[key.second][key.first] += count.peak;
  }
  // "block.2" before "block.10".
  std::ranges::sort(units, [](const std::string& a, const std::string& b) {
    return std::pair(a.find('.') == std::string::npos ? 0 : a.size(), a) <
           std::pair(b.find('.') == std::string::npos ? 0 : b.size(), b);
  });
  std::size_t width = 12;
  for (const std::string& unit : units) width = std::max(width, unit.size());
  std::string out = fmt::format("{:<{}}", "unit", width);
  const auto column = [](Tag tag) { return std::max<std::size_t>(12, name_of(tag).size()); };
  for (const Tag tag : tags) out += fmt::format(" {:>{}}", name_of(tag), column(tag));
  out += "\n";
  for (const std::string& unit : units) {
    out += fmt::format("{:<{}}", unit.empty() ? "(all)" : unit, width);
    for (const Tag tag : tags)
      out += fmt::format(" {:>{}}", bytes[unit][tag] ? byte_text(bytes[unit][tag]) : "", column(tag));
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  out.pop_back();
  return out;
}

nlohmann::ordered_json plan_json(const RunSpec& spec, const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json tags = Json::object(), rows = Json::array();
  for (int t = 0; t < kTags; ++t) {
    const Tag tag = static_cast<Tag>(t);
    if (plan.peaks[t] > 0) tags[std::string(name_of(tag))] = {{"steady", plan.current(tag)}, {"peak", plan.peaks[t]}};
  }
  for (const auto& [key, count] : plan.rows)
    rows.push_back(
        {{"tag", name_of(key.first)}, {"unit", key.second}, {"steady", count.current}, {"peak", count.peak}});
  Json relayouts = Json::array();
  for (const Relayout& one : plan.relayouts)
    relayouts.push_back({{"after_steps", one.steps},
                         {"share", one.share},
                         {"before", one.before},
                         {"after", one.after},
                         {"evenly", one.evenly}});
  return {{"rank", plan.rank},
          {"units_of_rank", plan.units},
          {"parameters", plan.parameters},
          {"adapter_parameters", plan.adapters},
          {"stored_parameters", plan.stored},
          {"stored_parameters_of_rank", plan.layer_part},
          {"tokens_per_step", plan.tokens_a_step},
          {"precision", name_of(spec.precision.compute)},
          {"micro", spec.layout.micro},
          {"model_flops_per_step", plan.model_flops},
          {"executed_flops_per_step", plan.executed.flops},
          {"executed_matmul_flops_per_step", plan.executed.matmul_flops},
          {"peak_bytes", plan.peak},
          {"steady_bytes", plan.steady},
          {"outside_bytes", plan.outside},
          {"host_bytes", plan.host},
          {"disk_bytes", plan.disk},
          {"copies_bytes", plan.copies.folder + plan.copies.process},
          {"offload_bytes", plan.moved.from_device},
          {"offload_activation_bytes", plan.moved_activations},
          {"tags", tags},
          {"units", rows},
          {"ranks", spec.layout.ranks()},
          {"layout", to_text(spec.layout)},
          {"messages", messages_json(plan.messages)},
          {"synchronization", messages_json(plan.synchronization)},
          {"relayouts", relayouts},
          {"relayouts_exact", plan.exact_relayouts}};
}

nlohmann::ordered_json messages_json(const StepMessages& messages) {
  using Json = nlohmann::ordered_json;
  const SentMessages all = messages.total(), &numbers = messages.numbers;
  Json tensors = Json::array();
  for (const auto& [op, dtype, of, axis] : messages.tensors)
    tensors.push_back({{"axis", name_of(axis)},
                       {"op", name_of(op)},
                       {"dtype", name_of(dtype)},
                       {"calls", of.calls},
                       {"elements", of.sent},
                       {"received", of.received},
                       {"bytes", of.bytes_sent}});
  return {{"tensors", tensors},
          {"elements", all.sent},
          {"bytes", all.bytes_sent},
          {"numbers", {{"calls", numbers.calls}, {"elements", numbers.sent}, {"bytes", numbers.bytes_sent}}}};
}

}  // namespace lockstep
