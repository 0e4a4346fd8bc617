#include "plan/compared_round.h"

#include <nlohmann/json.hpp>

namespace lockstep {

namespace {

using Json = nlohmann::json;

Json sent_json(const SentMessages& of) { return {of.calls, of.sent, of.received, of.bytes_sent}; }

SentMessages sent_messages(const Json& json) { return {json[0], json[1], json[2], json[3]}; }

}  // namespace

std::string to_text(const ComparedRound& round) {
  Json rows = Json::array(), tensors = Json::array(), spans = Json::array();
  for (const auto& [key, count] : round.rank.rows)
    rows.push_back({static_cast<int>(key.first), key.second, count.current, count.peak});
  for (const StepMessages::Row& row : round.rank.messages.tensors)
    tensors.push_back(
        {static_cast<int>(row.op), static_cast<int>(row.dtype), static_cast<int>(row.axis), sent_json(row.of)});
  for (const StepSpans::Step& step : round.spans) {
    Json& all = spans.emplace_back(Json::array());
    for (const StepSpans::Span& span : step) all.push_back({span.action, span.begin, span.end});
  }
  return Json{{"peaks", round.rank.peaks},
              {"peak", round.rank.peak},
              {"rows", rows},
              {"host", round.rank.host},
              {"disk", round.rank.disk},
              {"moved", {round.rank.moved.to_device, round.rank.moved.from_device}},
              {"tensors", tensors},
              {"sent", round.rank.sent},
              {"numbers", sent_json(round.rank.messages.numbers)},
              {"step", round.step},
              {"exposed", round.exposed},
              {"spans", spans},
              {"loss", round.loss}}
      .dump();
}

ComparedRound compared_round(const std::string& text) {
  const Json json = Json::parse(text);
  ComparedRound round{.rank = {}, .step = json["step"], .exposed = json["exposed"], .loss = json["loss"]};
  round.rank.peaks = json["peaks"];
  round.rank.peak = json["peak"];
  round.rank.host = json["host"];
  round.rank.disk = json["disk"];
  round.rank.moved = {.to_device = json["moved"][0], .from_device = json["moved"][1]};
  for (const Json& row : json["rows"])
    round.rank.rows[{static_cast<Tag>(row[0].get<int>()), row[1].get<std::string>()}] = {row[2], row[3]};
  for (const Json& row : json["tensors"])
    round.rank.messages.tensors.push_back({.op = static_cast<CommOp>(row[0].get<int>()),
                                           .dtype = static_cast<DType>(row[1].get<int>()),
                                           .of = sent_messages(row[3]),
                                           .axis = static_cast<MeshAxis>(row[2].get<int>())});
  round.rank.sent = json["sent"];
  round.rank.messages.numbers = sent_messages(json["numbers"]);
  for (const Json& step : json["spans"]) {
    StepSpans::Step& all = round.spans.emplace_back();
    for (const Json& span : step) all.push_back({span[0], span[1], span[2]});
  }
  return round;
}

}  // namespace lockstep
