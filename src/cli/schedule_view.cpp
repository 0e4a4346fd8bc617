#include "cli/schedule_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/text_table.h"
#include "spec/pipeline/pipedream.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using nlohmann::ordered_json;

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100 + 0.0); }

double idle_of_makespan(const PipelineTimeline& line, std::size_t stage) {
  double busy = 0;
  for (const ChunkSpan& span : line.stages[stage]) busy += span.end - span.begin;
  const double all = line.makespan();
  return all > 0 ? (all - busy) / all : 0;
}

double idle_of_makespan(const MeasuredTimeline& m, std::size_t stage) {
  double busy = 0;
  for (const double time : m.busy[stage]) busy += time;
  const double all = m.line.makespan();
  return all > 0 ? (all - busy) / all : 0;
}

// In units of a stage's part of the model.
double kept(const PipelineSchedule& schedule, std::size_t stage) {
  return static_cast<double>(in_flight(schedule.stages[stage])) / schedule.shape.chunks;
}
double most_kept(const PipelineSchedule& schedule) {
  double most = 0;
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) most = std::max(most, kept(schedule, s));
  return most;
}

double usual_makespan(std::span<const NamedSchedule> all) {
  return std::ranges::find(all, "1f1b", &NamedSchedule::name)->line.makespan();
}

ordered_json shape_json(const PipelineShape& shape) {
  return {{"stages", shape.stages}, {"micro", shape.micro}, {"chunks", shape.chunks}};
}

ordered_json steps_json(const std::vector<ChunkSpan>& spans) {
  constexpr std::string_view kNames[] = {"forward", "backward", "backward_input", "backward_weight"};
  ordered_json steps = ordered_json::array();
  for (const ChunkSpan& span : spans)
    steps.push_back({{"step", kNames[static_cast<int>(span.action.step)]},
                     {"chunk", span.action.chunk},
                     {"micro", span.action.micro},
                     {"begin", span.begin},
                     {"end", span.end}});
  return steps;
}

}  // namespace

PipelineTimeline timed(const PipelineSchedule& schedule, const ScheduleTimes& times) {
  const double chunks = schedule.shape.chunks;
  return timed(schedule, [&](int) {
    return ChunkTimes{.forward = times.forward / chunks,
                      .input = times.input / chunks,
                      .weight = times.weight / chunks,
                      .message = times.message};
  });
}

std::string shape_text(const PipelineShape& s) {
  return fmt::format("{} stage{}{}, {} micro-batch{}", s.stages, s.stages == 1 ? "" : "s",
                     s.chunks > 1 ? fmt::format(" of {} chunks", s.chunks) : "", s.micro, s.micro == 1 ? "" : "es");
}

// Of the weights of a stage of a pipeline without a flush.
static int versions_of(const NamedSchedule& drawn, std::size_t stage) {
  const PipelineShape& shape = drawn.schedule.shape;
  return 1 +
         PipeDreamStage{.kind = *drawn.unflushed, .stages = shape.stages, .stage = static_cast<int>(stage)}.stashes();
}

std::string stage_table(const NamedSchedule& drawn) {
  TextTable table{.title = fmt::format("makespan {:g}, bubble {}", drawn.line.makespan(), percent(drawn.line.bubble())),
                  .heads = {"stage", "idle", "idle, first step to last", "activations at peak"},
                  .rows = {}};
  if (drawn.unflushed) table.heads.push_back("versions of weights");
  for (std::size_t s = 0; s < drawn.schedule.stages.size(); ++s) {
    table.rows.push_back({fmt::format("{}", s), percent(idle_of_makespan(drawn.line, s)),
                          percent(drawn.line.own_bubble(static_cast<int>(s))),
                          fmt::format("{}", in_flight(drawn.schedule.stages[s]))});
    if (drawn.unflushed) table.rows.back().push_back(fmt::format("{}", versions_of(drawn, s)));
  }
  return table.plain() +
         fmt::format("activations: micro-batches of a chunk in flight{}\n",
                     drawn.schedule.shape.chunks > 1
                         ? fmt::format("; {} of them are one of the whole stage", drawn.schedule.shape.chunks)
                         : "");
}

ordered_json schedule_json(const NamedSchedule& drawn) {
  ordered_json stages = ordered_json::array();
  for (std::size_t s = 0; s < drawn.schedule.stages.size(); ++s) {
    stages.push_back({{"bubble", idle_of_makespan(drawn.line, s)},
                      {"own_bubble", drawn.line.own_bubble(static_cast<int>(s))},
                      {"in_flight", in_flight(drawn.schedule.stages[s])},
                      {"steps", steps_json(drawn.line.stages[s])}});
    if (drawn.unflushed) stages.back()["versions"] = versions_of(drawn, s);
  }
  return {{"schedule", drawn.name},
          {"shape", shape_json(drawn.schedule.shape)},
          {"stage_of", drawn.schedule.stage_of},
          {"makespan", drawn.line.makespan()},
          {"bubble", drawn.line.bubble()},
          {"stages", stages}};
}

std::string kinds_table(std::span<const NamedSchedule> all, const std::string& planned) {
  const PipelineShape& shape = all.front().schedule.shape;
  TextTable table{.title = shape_text({shape.stages, shape.micro, 1}),
                  .heads = {"schedule", "chunks", "bubble", "makespan", "of 1f1b's", "in flight, first stage",
                            "fullest stage", "bytes, fullest stage"},
                  .rows = {}};
  for (const NamedSchedule& each : all)
    table.rows.push_back(
        {each.name, fmt::format("{}", each.schedule.shape.chunks), percent(each.line.bubble()),
         fmt::format("{:g}", each.line.makespan()), fmt::format("{:.3f}", each.line.makespan() / usual_makespan(all)),
         fmt::format("{:.4g}", kept(each.schedule, 0)), fmt::format("{:.4g}", most_kept(each.schedule)),
         each.activation_bytes ? byte_text(*each.activation_bytes) : "-"});
  return table.plain() +
         fmt::format(
             "in flight: at peak, in activations of a stage's whole part of the model for one micro-batch: the theory\n"
             "bytes: of activations, as lockstep plan has them, of {}\n",
             planned);
}

ordered_json kinds_json(std::span<const NamedSchedule> all) {
  ordered_json out = ordered_json::array();
  for (const NamedSchedule& each : all)
    out.push_back(
        {{"schedule", each.name},
         {"shape", shape_json(each.schedule.shape)},
         {"bubble", each.line.bubble()},
         {"makespan", each.line.makespan()},
         {"of_1f1b", each.line.makespan() / usual_makespan(all)},
         {"activations_first", kept(each.schedule, 0)},
         {"activations_most", most_kept(each.schedule)},
         {"activation_bytes", each.activation_bytes ? ordered_json(*each.activation_bytes) : ordered_json()}});
  return out;
}

std::string measured_table(const MeasuredTimeline& m, const PipelineTimeline& ideal) {
  const double within = m.bubble() - m.line.bubble();
  TextTable table{
      .title = fmt::format(
          "bubble: {} measured ({} of it within steps), {} ideal\nmakespan: {:.3f} ms measured, {:.3f} ms ideal",
          percent(m.bubble()), percent(within), percent(ideal.bubble()), m.line.makespan() * 1e3,
          ideal.makespan() * 1e3),
      .heads = {"stage", "rank", "idle", "ideal", "first step to last", "ideal", "activations"},
      .rows = {}};
  for (std::size_t s = 0; s < m.line.stages.size(); ++s) {
    const int stage = static_cast<int>(s);
    table.rows.push_back({fmt::format("{}", s), fmt::format("{}", m.ranks[s]), percent(idle_of_makespan(m, s)),
                          percent(idle_of_makespan(ideal, s)), percent(m.own_bubble(stage)),
                          percent(ideal.own_bubble(stage)), fmt::format("{}", in_flight(m.schedule.stages[s]))});
  }
  return table.plain();
}

ordered_json measured_json(const MeasuredTimeline& m, const PipelineTimeline& ideal) {
  ordered_json measured_stages = ordered_json::array(), ideal_stages = measured_stages;
  for (std::size_t s = 0; s < m.line.stages.size(); ++s) {
    const int stage = static_cast<int>(s);
    measured_stages.push_back({{"rank", m.ranks[s]},
                               {"bubble", idle_of_makespan(m, s)},
                               {"own_bubble", m.own_bubble(stage)},
                               {"in_flight", in_flight(m.schedule.stages[s])},
                               {"steps", steps_json(m.line.stages[s])}});
    ideal_stages.push_back({{"bubble", idle_of_makespan(ideal, s)},
                            {"own_bubble", ideal.own_bubble(stage)},
                            {"steps", steps_json(ideal.stages[s])}});
  }
  return {{"step", m.step},
          {"shape", shape_json(m.schedule.shape)},
          {"stage_of", m.schedule.stage_of},
          {"measured",
           {{"makespan", m.line.makespan()},
            {"bubble", m.bubble()},
            {"bubble_within_steps", m.bubble() - m.line.bubble()},
            {"stages", measured_stages}}},
          {"ideal", {{"makespan", ideal.makespan()}, {"bubble", ideal.bubble()}, {"stages", ideal_stages}}}};
}

}  // namespace lockstep
