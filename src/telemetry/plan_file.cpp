#include "telemetry/plan_file.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "telemetry/rank_now.h"

namespace lockstep {

namespace {

using nlohmann::json;

const json& plan_field(const json& object, const char* key) {
  static const json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

void take(const json& object, const char* key, std::optional<std::int64_t>& to) {
  const json& value = plan_field(object, key);
  if (!value.is_number_integer()) return;
  if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>())) return;
  to = value.get<std::int64_t>();
}
void take(const json& object, const char* key, std::optional<double>& to) {
  const json& value = plan_field(object, key);
  if (value.is_number() && std::isfinite(value.get<double>())) to = value.get<double>();
}
void take(const json& object, const char* key, std::optional<std::string>& to) {
  const json& value = plan_field(object, key);
  if (value.is_string()) to = value.get<std::string>();
}
void take(const json& object, const char* key, std::optional<bool>& to) {
  const json& value = plan_field(object, key);
  if (value.is_boolean()) to = value.get<bool>();
}

std::int64_t planned_number(const json& object, const char* key) {
  std::optional<std::int64_t> number;
  take(object, key, number);
  return number.value_or(0);
}

// -1: of no rank.
int planned_rank(const json& object) {
  std::optional<std::int64_t> rank;
  take(object, "rank", rank);
  return rank && *rank >= 0 && *rank < kMostRanks ? static_cast<int>(*rank) : -1;
}

template <class Each>
void each_entry(const json& value, const Each& each) {
  if (value.is_object())
    for (const auto& [key, inner] : value.items()) each(key, inner);
}

void take_memory(const json& list, std::vector<PlannedMemory>& to) {
  if (!list.is_array()) return;
  for (const json& one : list) {
    PlannedMemory memory{.rank = planned_rank(one), .peak = planned_number(one, "peak"), .by_tag = {}};
    if (memory.rank < 0) continue;
    each_entry(plan_field(one, "bytes"), [&](const std::string& tag, const json& bytes) {
      if (bytes.is_number_integer()) memory.by_tag[tag] = bytes.get<std::int64_t>();
    });
    to.push_back(std::move(memory));
  }
}

void take_sent(const json& list, std::vector<PlannedSent>& to) {
  if (!list.is_array()) return;
  for (const json& one : list) {
    PlannedSent sent{.rank = planned_rank(one), .by_axis = {}};
    if (sent.rank < 0) continue;
    each_entry(one, [&](const std::string& axis, const json& inner) {
      if (inner.is_object())
        sent.by_axis[axis] = {.calls = planned_number(inner, "calls"), .bytes = planned_number(inner, "bytes")};
    });
    to.push_back(std::move(sent));
  }
}

void take_ideal(const json& list, std::vector<IdealSpan>& to) {
  if (!list.is_array()) return;
  for (const json& one : list) {
    std::optional<std::string> name;
    std::optional<double> begin, end;
    take(one, "name", name);
    take(one, "begin", begin);
    take(one, "end", end);
    const int rank = planned_rank(one);
    if (rank >= 0 && begin && end)
      to.push_back({.rank = rank, .name = name.value_or(""), .begin = *begin, .end = *end});
  }
}

std::optional<PredictedStep> predicted_step(const json& object) {
  std::optional<std::string> machine;
  std::optional<double> seconds;
  take(object, "machine", machine);
  take(object, "step_seconds", seconds);
  if (!seconds || !(*seconds > 0)) return std::nullopt;
  PredictedStep step{.machine = machine.value_or(""), .step_seconds = *seconds};
  take(object, "bubble", step.bubble);
  take(object, "mfu", step.mfu);
  std::optional<std::int64_t> every;
  take(plan_field(object, "local_steps"), "every", every);
  step.every = std::max<std::int64_t>(1, every.value_or(1));
  for (std::size_t a = 0; a < kWaitAxes; ++a) {
    std::optional<double> waited;
    take(plan_field(object, "exposed_seconds"), kWaitAxisNames[a].data(), waited);
    step.exposed[a] = waited.value_or(0);
  }
  return step;
}

}  // namespace

RunPlan parse_run_plan(std::string_view text) {
  RunPlan plan;
  const json object = json::parse(text.begin(), text.end(), nullptr, false);
  if (!object.is_object()) return plan;
  plan.found = true;
  take(object, "layout", plan.layout);
  take(object, "device", plan.device);
  take(object, "precision", plan.precision);
  take(object, "schedule", plan.schedule);
  take(object, "recompute", plan.recompute);
  take(object, "offload", plan.offload);
  take(object, "offload_share", plan.offload_share);
  take(object, "moved_bytes", plan.moved_bytes);
  take(object, "peak_source", plan.peak_source);
  take(object, "ranks", plan.ranks);
  take(object, "steps", plan.steps);
  take(object, "tokens_a_step", plan.tokens_a_step);
  take(object, "parameters", plan.parameters);
  take(object, "micro", plan.micro);
  take(object, "micro_batch", plan.micro_batch);
  take(object, "seq", plan.seq);
  take(object, "global_batch", plan.global_batch);
  take(object, "bucket", plan.bucket);
  take(object, "zero", plan.zero);
  take(object, "warmup", plan.warmup);
  take(object, "cores", plan.cores);
  take(object, "host_cores", plan.host_cores);
  take(object, "threads", plan.threads);
  take(object, "model_flops_a_step", plan.model_flops_a_step);
  take(object, "model_flops_6n_a_step", plan.model_flops_6n_a_step);
  take(object, "peak_flops", plan.peak_flops);
  take(object, "lr", plan.lr);
  take(object, "clip", plan.clip);
  take(object, "overlap", plan.overlap);
  take(plan_field(object, "link"), "latency_s", plan.link_latency_s);
  take(plan_field(object, "link"), "bytes_per_s", plan.link_bytes_per_s);
  take(plan_field(object, "ideal"), "bubble", plan.ideal_bubble);
  each_entry(plan_field(object, "axes"), [&](const std::string& axis, const json& ranks) {
    if (ranks.is_number_integer()) plan.axes[axis] = ranks.get<std::int64_t>();
  });
  take_memory(plan_field(object, "memory"), plan.memory);
  take_sent(plan_field(object, "sent"), plan.sent);
  take_ideal(plan_field(plan_field(object, "ideal"), "spans"), plan.ideal);
  plan.predicted = predicted_step(plan_field(object, "predicted"));
  return plan;
}

RunPlan read_run_plan(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return {};
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error || size > kMostPlanBytes) return {};
  std::ifstream in(file, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_run_plan(text);
}

}  // namespace lockstep
