#include "telemetry/event_log.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "telemetry/step_lines.h"

namespace lockstep {

namespace {

constexpr std::array<std::string_view, kEventKinds> kEventNames = {
    "start",   "step",     "save", "saved",    "evaluation", "fault",    "stall", "clock", "end",
    "restart", "decision", "slow", "slow_end", "rewind",     "relayout", "leave", "join"};
constexpr std::array<std::string_view, kDecisions> kDecisionNames = {"same", "spare", "shrink", "grow",
                                                                     "wait", "end",   "go_on"};

nlohmann::json number_or_null(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? nlohmann::json(*number) : nlohmann::json(nullptr);
}

// What the resumed run does again, and writes again.
bool happens_again(const nlohmann::json& line) {
  const auto kind = line.find("kind");
  if (kind == line.end() || !kind->is_string()) return true;
  for (const EventKind again :
       {EventKind::step, EventKind::save, EventKind::saved, EventKind::evaluation, EventKind::relayout})
    if (kind->get_ref<const std::string&>() == name_of(again)) return true;
  return false;
}

}  // namespace

std::string_view name_of(EventKind kind) { return kEventNames[static_cast<std::size_t>(kind)]; }
std::string_view name_of(Decision decision) { return kDecisionNames[static_cast<std::size_t>(decision)]; }

std::string to_json_line(const LoggedEvent& event) {
  nlohmann::ordered_json line;
  line["time"] = number_or_null(event.time);
  line["error"] = number_or_null(event.error);
  line["rank"] = event.rank < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(event.rank);
  line["kind"] = name_of(event.kind);
  line["step"] = event.step;
  line["seconds"] = number_or_null(event.seconds);
  line["text"] = event.text;
  if (event.decision) line["decision"] = name_of(*event.decision);
  if (event.epoch) line["epoch"] = *event.epoch;
  if (event.ranks) line["ranks"] = *event.ranks;
  if (event.lost)
    line["lost"] = {{"steps", event.lost->steps},
                    {"from", number_or_null(event.lost->from)},
                    {"until", number_or_null(event.lost->until)}};
  if (event.culprit) line["culprit"] = *event.culprit;
  if (event.speaks) line["speaks"] = true;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

EventLog::EventLog(const std::filesystem::path& path, const Options& options)
    : sampling_(options.every > 0 ? std::make_optional<StepSampling>(options.every) : std::nullopt),
      file_(path, open(path, options)) {}

int EventLog::open(const std::filesystem::path& path, const Options& options) {
  if (options.last_step <= 0 && !options.resumes) return open_step_lines(path, 0);
  return open_lines(path, [&](const nlohmann::json& line) {
    if (line["step"].get<std::int64_t>() > options.last_step && happens_again(line)) return false;
    if (sampling_ && line.value("kind", nlohmann::json()) == name_of(EventKind::step)) sampling_->count_line();
    return true;
  });
}

bool EventLog::wants(const LoggedEvent& event) {
  if (event.kind != EventKind::step) return true;
  if (!sampling_) return false;
  if (event.step != step_) {  // the same for all ranks
    step_ = event.step;
    wanted_ = sampling_->wants(step_);
    if (wanted_) sampling_->recorded();
  }
  return wanted_;
}

void EventLog::write(const LoggedEvent& event) {
  if (!wants(event)) return;
  const std::int64_t dropped = file_.dropped();
  file_.write(to_json_line(event));
  if (event.kind == EventKind::step && file_.dropped() == dropped) sampling_->count_line();
}

void append_event(const std::filesystem::path& path, const LoggedEvent& event) noexcept {
  try {
    std::error_code missing;
    if (std::filesystem::exists(path, missing)) AppendedFile(path).write(to_json_line(event));
  } catch (...) {  // the event is told elsewhere too
  }
}

}  // namespace lockstep
