#include "plan/plan_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spec/layout/layout_toml.h"
#include "spec/pipeline/clock.h"

namespace lockstep {

namespace {

using PlanJson = nlohmann::ordered_json;

constexpr std::size_t kMostIdealSpans = 100000;  // beyond that nobody looks at them one by one

// `not_here`: bytes of data in the plan that another rank holds.
PlanJson memory_of(const Plan& plan, std::int64_t rank, std::int64_t not_here) {
  PlanJson bytes = PlanJson::object();
  for (int t = 0; t < kTags; ++t)
    if (const Tag tag = static_cast<Tag>(t); plan.peak_of(tag) > 0)
      bytes[std::string(name_of(tag))] = plan.peak_of(tag);
  if (not_here > 0) bytes[std::string(name_of(Tag::data))] = plan.peak_of(Tag::data) - not_here;
  return {{"rank", rank}, {"peak", plan.peak - not_here}, {"bytes", bytes}};
}

PlanJson messages_of(const Plan& plan, std::int64_t rank) {
  PlanJson sent{{"rank", rank}};
  for (const MeshAxis axis : kMeshAxes)
    if (const SentMessages total = plan.messages.total(axis); total.calls > 0)
      sent[std::string(name_of(axis))] = {{"calls", total.calls}, {"bytes", total.bytes_sent}};
  return sent;
}

std::string step_name(const ChunkAction& action, bool chunks) {
  constexpr std::string_view kLetters = "FBIW";
  std::string name = fmt::format("{}{}", kLetters[static_cast<std::size_t>(action.step)], action.micro);
  return chunks ? fmt::format("{}@{}", name, action.chunk) : name;
}

// Of stages that take equally long: forward one, each half of the backward one.
PlanJson ideal_of(const PlanFacts& facts) {
  const LayoutSpec& layout = facts.spec.layout;
  if (layout.pp == 1) return nullptr;
  const double part = 1.0 / static_cast<double>(facts.schedule.shape.chunks);
  const PipelineTimeline line =
      timed(facts.schedule, [&](int) { return ChunkTimes{.forward = part, .input = part, .weight = part}; });
  PlanJson spans = PlanJson::array();
  std::size_t count = 0;
  for (const auto& stage : line.stages) count += stage.size();
  const double all = line.makespan();
  for (std::int64_t rank = 0; count <= kMostIdealSpans && rank < layout.ranks(); ++rank) {
    // One rank of each stage: the others of it do the same at the same time.
    if (layout.dp_rank(rank) + layout.cp_rank(rank) + layout.tp_rank(rank) > 0) continue;
    for (const ChunkSpan& span : line.stages[static_cast<std::size_t>(layout.stage(rank))])
      spans.push_back({{"rank", rank},
                       {"name", step_name(span.action, facts.schedule.shape.chunks > 1)},
                       {"begin", span.begin / all},
                       {"end", span.end / all}});
  }
  return {{"bubble", line.bubble()}, {"spans", spans}};
}

}  // namespace

std::string plan_json(const PlanFacts& facts) {
  const RunSpec& spec = facts.spec;
  const LayoutSpec& layout = spec.layout;
  const Plan& first = facts.stages.front();
  PlanJson memory = PlanJson::array(), sent = PlanJson::array();
  std::int64_t moved = 0;
  for (const Plan& plan : facts.stages) moved = std::max(moved, plan.moved.to_device + plan.moved.from_device);
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    const std::int64_t servers = layout.serves(rank) ? layout.pp : 0;
    const Plan& plan = facts.stages[static_cast<std::size_t>(servers + layout.stage(rank))];
    memory.push_back(memory_of(plan, rank, rank == 0 ? 0 : facts.shared_corpus));
    sent.push_back(messages_of(plan, rank));
  }
  const auto or_null = [](const std::optional<double>& value) { return value ? PlanJson(*value) : PlanJson(nullptr); };
  PlanJson plan{
      {"layout", to_text(layout)},
      {"ranks", layout.ranks()},
      {"axes", {{"dp", layout.dp}, {"pp", layout.pp}, {"cp", layout.cp}, {"tp", layout.tp}}},
      {"device", name_of(spec.run.device)},
      {"precision", name_of(spec.precision.compute)},
      {"steps", spec.train.steps},
      {"tokens_a_step", first.tokens_a_step},
      {"parameters", first.parameters},
      {"model_flops_a_step", first.model_flops},
      {"model_flops_6n_a_step",  // of frozen weights 4, as they have no gradient
       (first.adapters > 0 ? 4.0 * static_cast<double>(first.parameters) + 6.0 * static_cast<double>(first.adapters)
                           : 6.0 * static_cast<double>(first.parameters)) *
           first.useful_tokens},
      {"peak_flops", or_null(facts.peak_flops)},
      {"peak_source", facts.peak_source},
      {"micro", layout.micro},
      {"micro_batch", share_of(spec.train.global_batch, layout, 0).count / layout.micro},
      {"seq", spec.data.seq},
      {"global_batch", spec.train.global_batch},
      {"schedule", name_of(layout.schedule)},
      {"overlap", layout.overlap == Switch::on},
      {"bucket", layout.bucket << 20},
      {"recompute", name_of(spec.memory.recompute)},
      {"offload", name_of(spec.memory.offloads_to())},
      {"offload_share", spec.memory.offloads_to() == Offload::none ? 0 : spec.memory.offload_share},
      {"moved_bytes", moved},
      {"zero", layout.zero},
      {"lr", spec.optimizer.learning_rate},
      {"warmup", spec.schedule.warmup},
      {"clip", spec.optimizer.clip},
      {"cores", facts.cores},
      {"host_cores", facts.host_cores},
      {"threads", facts.threads},
      {"memory", memory},
      {"sent", sent},
      {"link", facts.link ? PlanJson{{"latency_s", facts.link->latency}, {"bytes_per_s", facts.link->bytes_per_s}}
                          : PlanJson(nullptr)},
      {"ideal", ideal_of(facts)}};
  if (facts.machine && facts.predicted) plan["predicted"] = to_json(*facts.predicted, *facts.machine);
  return plan.dump() + "\n";
}

}  // namespace lockstep
