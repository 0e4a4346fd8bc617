#include "telemetry/run_event.h"

#include <algorithm>

#include "telemetry/json_line.h"
#include "telemetry/rank_now.h"

namespace lockstep {

namespace {

double number_or_unknown(const JsonScalar& value) { return number_in(value).value_or(kUnknown); }

int rank_or_none(const JsonScalar& value) {
  return static_cast<int>(std::min<std::int64_t>(whole_number_in(value).value_or(-1), kMostRanks));
}

void take_lost(LostInTry& lost, std::string_view key, const JsonScalar& value) {
  if (key == "steps") lost.steps = whole_number_in(value).value_or(0);
  if (key == "from") lost.from = number_or_unknown(value);
  if (key == "until") lost.until = number_or_unknown(value);
}

void take(RunEvent& event, std::string_view key, const JsonScalar& value) {
  if (key == "time") event.time = number_or_unknown(value);
  if (key == "error") event.error = number_or_unknown(value);
  if (key == "seconds") event.seconds = number_or_unknown(value);
  if (key == "step") event.step = whole_number_in(value).value_or(-1);
  if (key == "rank") event.rank = rank_or_none(value);
  if (key == "kind") event.kind = text_in(value).substr(0, 64);
  if (key == "text") event.text = text_in(value).substr(0, kMostEventText);
  if (key == "decision") event.decision = text_in(value).substr(0, 64);
  if (key == "epoch") event.epoch = whole_number_in(value).value_or(-1);
  if (key == "culprit") event.culprit = rank_or_none(value);
  if (key == "speaks") event.speaks = std::holds_alternative<bool>(value) && std::get<bool>(value);
}

}  // namespace

std::optional<RunEvent> read_run_event(std::string_view line) {
  RunEvent event;
  LostInTry lost;
  bool has_lost = false;
  const bool whole = read_json_line(line, [&](JsonKeys keys, const JsonScalar& value) {
    if (keys.size() == 1) take(event, keys[0], value);
    if (keys.size() != 2 || keys[0] != "lost") return;
    has_lost = true;
    take_lost(lost, keys[1], value);
  });
  if (!whole || event.kind.empty()) return std::nullopt;
  if (has_lost && known(lost.from) && known(lost.until)) event.lost = lost;
  return event;
}

}  // namespace lockstep
