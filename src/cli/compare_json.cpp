#include <nlohmann/json.hpp>

#include "cli/compare_view.h"
#include "cli/plan_view.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

Json axes_json(const ComparedLayout& one) {
  const auto sent = [](const SentMessages& of) {
    return Json{{"calls", of.calls}, {"elements", of.sent}, {"received", of.received}, {"bytes", of.bytes_sent}};
  };
  Json axes = Json::object();
  for (const MeshAxis axis : kMeshAxes) {
    const SentMessages planned = one.sender_plan.messages.total(axis),
                       measured = one.sender_rank().messages.total(axis);
    if (planned.calls + measured.calls > 0)
      axes[std::string(name_of(axis))] = {{"predicted", sent(planned)}, {"measured", sent(measured)}};
  }
  return axes;
}

Json forecast_json(const ComparedLayout& one, bool by_machine) {
  if (!one.forecast) return {};
  const LayoutForecast& f = *one.forecast;
  const MachineRates& machine = f.from.machine;
  const MessageRates& messages = f.from.messages;
  const ActionRates& actions = f.from.actions;
  Json all{{"step_seconds", f.step_seconds},
           {"step_error", one.forecast_error()},
           {"exposed_seconds", f.exposed_seconds},
           {"bubble", f.bubble ? Json(*f.bubble) : Json()},
           {"tokens_per_second", one.forecast_tokens_a_second()}};
  if (by_machine) return all;
  all["calibration"] = {{"product_flops_per_second", machine.flops},  {"copy_bytes_per_second", machine.bytes},
                        {"message_seconds", messages.latency},        {"summed_bytes_per_second", messages.summed},
                        {"copied_bytes_per_second", messages.copied}, {"one_rank_measured", actions.measured},
                        {"one_rank_over_roofline", actions.mean}};
  return all;
}

Json layout_json(const Comparison& comparison, const ComparedLayout& one, const CompareAsked& asked) {
  Json tags = Json::object(), held = Json::array();
  for (std::size_t t = 0; t < kTags; ++t)
    if (one.fullest_plan.peaks[t] + one.fullest_rank().peaks[t] > 0)
      tags[std::string(name_of(static_cast<Tag>(t)))] = {{"predicted", one.fullest_plan.peaks[t]},
                                                         {"measured", one.fullest_rank().peaks[t]}};
  for (const ComparedRank& rank : one.ranks) held.push_back(rank.peak);
  const auto e = efficiency(comparison, one, asked.cores);
  return {{"layout", to_text(one.layout)},
          {"ranks", one.layout.ranks()},
          {"threads", one.threads},
          {"ok", one.ok()},
          {"stored_parameters", one.fullest_plan.stored},
          {"memory",
           {{"rank", one.fullest},
            {"tags", tags},
            {"peak", {{"predicted", one.fullest_plan.peak}, {"measured", one.fullest_rank().peak}}},
            {"peak_of_ranks", held},
            {"mean_peak", one.mean_peak()}}},
          {"messages",
           {{"rank", one.sender},
            {"predicted", messages_json(one.sender_plan.messages)},
            {"measured", messages_json(one.sender_rank().messages)},
            {"by_axis", axes_json(one)}}},
          {"step_seconds", one.step_seconds()},
          {"repeatability", one.repeatability},
          {"exposed_seconds", one.waits_measured ? Json(one.exposed_seconds()) : Json()},
          {"bubble", one.bubble ? Json(*one.bubble) : Json()},
          {"tokens_per_second", one.tokens_a_second()},
          {"predicted", forecast_json(one, asked.machine.has_value())},
          {"efficiency", e ? Json(*e) : Json()},
          {"loss", one.loss}};
}

Json score_json(const Comparison& comparison, const CompareAsked& asked) {
  const std::vector<ScoredLayout> layouts = scored_layouts(comparison);
  if (!asked.machine || layouts.empty()) return {};
  const LayoutScore score = score_layouts(layouts);
  Json first = Json::array();
  for (const std::size_t i : score.first) first.push_back(layouts[i].name);
  return {{"median_error", score.median_error},
          {"worst_error", score.worst_error},
          {"worst_layout", layouts[score.worst].name},
          {"predicted_fastest", first},
          {"best_of_these_over_fastest", score.first_over_fastest}};
}

}  // namespace

Json compare_json(const RunSpec& run, const Comparison& comparison, const CompareAsked& asked) {
  Json layouts = Json::array(), left_out = Json::array();
  for (const ComparedLayout& one : comparison.layouts) layouts.push_back(layout_json(comparison, one, asked));
  for (const auto& [layout, why] : comparison.left_out)
    left_out.push_back({{"layout", to_text(layout)}, {"ranks", layout.ranks()}, {"why", why}});
  for (const auto& [ranks, reasons] : asked.skipped)
    for (const std::string& why : reasons) left_out.push_back({{"layout", nullptr}, {"ranks", ranks}, {"why", why}});
  return {{"ok", comparison.ok()},
          {"complete", !comparison.stopped},
          {"cores", asked.cores},
          {"ranks_are", asked.ranks_here > 0 ? "processes" : "threads"},
          {"device", name_of(run.run.device)},
          {"link", asked.link ? Json{{"bytes_per_second", asked.link->bytes_per_second},
                                     {"latency_seconds", asked.link->latency_seconds}}
                              : Json()},
          {"machine", asked.machine ? Json(asked.machine->name) : Json()},
          {"score", score_json(comparison, asked)},
          {"parameters", parameter_count(run.model)},
          {"steps", asked.steps},
          {"global_batch", run.train.global_batch},
          {"tokens_per_step", run.train.global_batch * run.data.seq},
          {"precision", name_of(run.precision.compute)},
          {"layouts", layouts},
          {"left_out", left_out}};
}

}  // namespace lockstep
