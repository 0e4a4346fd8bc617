// What lockstep schedule prints: tables and JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "plan/measured_timeline.h"
#include "spec/pipeline/clock.h"

namespace lockstep {

// How much all chunks of a stage take for one micro-batch; each chunk has an equal share.
struct ScheduleTimes {
  double forward = 1, input = 1, weight = 1, message = 0;
};
PipelineTimeline timed(const PipelineSchedule& schedule, const ScheduleTimes& times);

struct NamedSchedule {
  std::string name;
  PipelineSchedule schedule;
  PipelineTimeline line;
  std::optional<std::int64_t> activation_bytes = {};  // of the fullest stage, where a run was planned
  std::optional<ScheduleKind> unflushed = {};         // without a flush: of all steps of a window
};

std::string shape_text(const PipelineShape& shape);  // "4 stages, 8 micro-batches"
std::string stage_table(const NamedSchedule& drawn);
nlohmann::ordered_json schedule_json(const NamedSchedule& drawn);

// `all` has one named "1f1b". `planned` names the run whose bytes they have.
std::string kinds_table(std::span<const NamedSchedule> all, const std::string& planned);
nlohmann::ordered_json kinds_json(std::span<const NamedSchedule> all);

std::string measured_table(const MeasuredTimeline& measured, const PipelineTimeline& ideal);
nlohmann::ordered_json measured_json(const MeasuredTimeline& measured, const PipelineTimeline& ideal);

}  // namespace lockstep
