#include <nlohmann/json.hpp>

#include "telemetry/report.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json stated_text(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json time_json(const ReportedTime& t) {
  Json shares = Json::object();
  for (std::size_t u = 0; t.split && u < kTimeUses; ++u)
    if (t.share[u] > 0) shares[std::string(kTimeUseNames[u])] = t.share[u];
  return {{"wall_s", t.wall_seconds},
          {"step_s", maybe(t.step_seconds)},
          {"slowest_twentieth_s", maybe(t.slowest_seconds)},
          {"shares", t.split ? shares : Json(nullptr)},
          {"advice", stated_text(t.advice)}};
}

Json efficiency_json(const ReportedEfficiency& e) {
  return {{"tokens_per_s", maybe(e.tokens_per_s)},
          {"tokens_per_s_rank", maybe(e.tokens_per_s_rank)},
          {"mfu", maybe(e.mfu)},
          {"mfu_6n", maybe(e.mfu_6n)},
          {"band", stated_text(e.band)},
          {"baseline", stated_text(e.baseline)},
          {"baseline_tokens_per_s_rank", maybe(e.baseline_rank)},
          {"against_baseline", maybe(e.against_baseline)},
          {"unknown", stated_text(e.why_unknown)}};
}

Json scored_json(const ScoredValue& value) {
  return {{"predicted", value.predicted}, {"measured", maybe(value.measured)}, {"error", maybe(value.error())}};
}

Json prediction_json(const PredictionScore& p) {
  Json exposed = Json::object();
  for (std::size_t a = 0; a < kWaitAxes; ++a)
    if (p.by_axis[a]) exposed[std::string(kWaitAxisNames[a])] = scored_json(*p.by_axis[a]);
  return {{"machine", p.machine},
          {"step_seconds", scored_json(p.step)},
          {"exposed_seconds", scored_json(p.exposed)},
          {"exposed_by_axis", exposed},
          {"bubble", p.bubble ? scored_json(*p.bubble) : Json(nullptr)},
          {"predicted_mfu", maybe(p.mfu)}};
}

Json memory_json(const std::vector<ReportedMemory>& memory) {
  Json all = Json::array();
  for (const ReportedMemory& m : memory)
    all.push_back({{"rank", m.rank},
                   {"planned", maybe(m.planned)},
                   {"measured", maybe(m.measured)},
                   {"planned_tags", m.planned_tags},
                   {"measured_tags", m.measured_tags}});
  return all;
}

Json stability_json(const ReportedStability& s) {
  const auto recorded = [&](std::int64_t count) { return s.events ? Json(count) : Json(nullptr); };
  return {{"faults", recorded(s.faults)},
          {"stalls", recorded(s.stalls)},
          {"restarts", recorded(s.restarts)},
          {"fault_texts", s.fault_texts},
          {"skipped_steps", s.skipped},
          {"overflows", s.overflows},
          {"loss_spikes", s.spikes},
          {"imbalance", maybe(s.imbalance)},
          {"busiest_rank", s.busiest_rank < 0 ? Json(nullptr) : Json(s.busiest_rank)},
          {"workers", s.workers ? to_json(*s.workers) : Json(nullptr)}};
}

}  // namespace

nlohmann::ordered_json to_json(const Goodput& goodput) {
  Json parts = Json::object();
  for (const auto& [name, seconds] : goodput.parts()) parts[std::string(name)] = seconds;
  return {{"share", goodput.share()},
          {"seconds", goodput.whole},
          {"parts", std::move(parts)},
          {"lost_steps", goodput.lost_steps}};
}

nlohmann::ordered_json to_json(const Report& r) {
  const ReportedQuality& q = r.quality;
  return {{"folder", r.folder},
          {"layout", stated_text(r.layout)},
          {"device", stated_text(r.device)},
          {"precision", stated_text(r.precision)},
          {"ranks", maybe(r.ranks)},
          {"parameters", maybe(r.parameters)},
          {"planned_steps", maybe(r.planned_steps)},
          {"step", r.last_step},
          {"running", maybe(r.running)},
          {"time", time_json(r.time)},
          {"efficiency", efficiency_json(r.efficiency)},
          {"pipeline", r.pipeline ? Json{{"ideal_bubble", r.pipeline->ideal_bubble},
                                         {"bubble", r.pipeline->bubble},
                                         {"throughput_over_ideal", r.pipeline->over_ideal}}
                                  : Json(nullptr)},
          {"prediction", r.prediction ? prediction_json(*r.prediction) : Json(nullptr)},
          {"quality",
           {{"first_loss", maybe(q.first_loss)},
            {"last_loss", maybe(q.last_loss)},
            {"best_loss", maybe(q.best_loss)},
            {"eval_step", q.eval_step < 0 ? Json(nullptr) : Json(q.eval_step)},
            {"eval_loss", maybe(q.eval_loss)},
            {"perplexity", maybe(q.perplexity)},
            {"accuracy", maybe(q.accuracy)}}},
          {"memory", memory_json(r.memory)},
          {"stability", stability_json(r.stability)},
          {"goodput", r.goodput ? to_json(*r.goodput) : Json(nullptr)}};
}

}  // namespace lockstep
