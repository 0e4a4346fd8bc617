#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/compare_sync.h"
#include "cli/text_table.h"
#include "spec/layout/layout_toml.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

TextTable speed_table(const SyncComparison& comparison) {
  TextTable table{.title = "per step, mean over ranks",
                  .heads = {"technique", "sent", "full's", "step", "exposed", "tokens/s", "full's", "predicted", "off",
                            "repeats", "plan"},
                  .rows = {}};
  for (const ComparedSync& one : comparison.all) {
    const ComparedLayout& ran = one.ran;
    const double fewer = comparison.bytes_of_full(one);
    table.rows.push_back({one.technique.name, byte_text(static_cast<std::int64_t>(ran.sent_per_step())),
                          fmt::format("{:.3g} %", 100 * fewer), seconds_text(ran.step_seconds()),
                          seconds_text(ran.exposed_seconds()), count_text(ran.tokens_a_second()),
                          fmt::format("{:.2f}x", comparison.relative(one)),
                          ran.forecast ? count_text(ran.forecast_tokens_a_second()) : "",
                          ran.forecast ? signed_percent(1 / (1 + ran.forecast_error()) - 1) : "",
                          fmt::format("{:.1f} %", 100 * ran.repeatability), ran.ok() ? "=" : "NO"});
  }
  return table;
}

TextTable loss_table(const SyncComparison& comparison, std::int64_t tokens) {
  TextTable table{.title = fmt::format("after {} tokens, without the link", count_text(static_cast<double>(tokens))),
                  .heads = {"technique", "loss", "more than full's"},
                  .rows = {}};
  for (const ComparedSync& one : comparison.all) {
    const auto more = comparison.more_loss(one);
    table.rows.push_back({one.technique.name, one.loss ? fmt::format("{:.4f}", *one.loss) : "",
                          more ? fmt::format("{:+.2f} %", 100 * *more) : ""});
  }
  return table;
}

constexpr std::string_view kSyncLegend =
    "Only full is inside the claim of equal results: every other row changes what is learned, on purpose.\n"
    "sent: bytes of tensors by the rank that sends most. exposed: a rank waited for messages. Both are means of steps\n"
    "with and without a synchronization, where replicas agree after several. off: predicted tokens/s over measured.\n"
    "repeats: the furthest that a round's step is from the median of the rounds'. plan =: bytes and messages, "
    "predicted\n"
    "on meta before the run, are equal to what was held and sent.\n";

}  // namespace

std::string sync_text(const RunSpec& run, const SyncComparison& comparison, const SyncShown& shown) {
  if (comparison.all.empty()) return "stopped as asked, before every technique had been tried\n";
  const ComparedLayout& full = comparison.all.front().ran;
  std::string out = fmt::format(
      "{} parameters, {} samples of {} tokens per step, {}; layout {}: {} ranks of {} thread{} on {} cores\n",
      count_text(static_cast<double>(full.fullest_plan.parameters)), run.train.global_batch, run.data.seq,
      name_of(run.precision.compute), to_text(run.layout), run.layout.ranks(), full.threads,
      full.threads == 1 ? "" : "s", shown.cores);
  const double computing = full.step_seconds() - full.exposed_seconds();
  if (shown.link)
    out += fmt::format("link of each rank, simulated: {}; full waits {:.1f} times as long as it computes\n",
                       to_text(*shown.link), computing > 0 ? full.exposed_seconds() / computing : 0);
  const auto add = [&](const TextTable& table) { out += "\n" + (shown.markdown ? table.markdown() : table.plain()); };
  add(speed_table(comparison));
  if (shown.tokens > 0) add(loss_table(comparison, shown.tokens));
  out += "\n" + std::string(kSyncLegend);
  if (comparison.stopped) out += "stopped as asked, before every technique had been tried\n";
  return out;
}

std::string sync_json(const RunSpec& run, const SyncComparison& comparison, const SyncShown& shown) {
  Json rows = Json::array();
  for (const ComparedSync& one : comparison.all) {
    const ComparedLayout& ran = one.ran;
    Json row{{"technique", one.technique.name},
             {"equal_results", !one.technique.run.sync.changes_numbers()},
             {"sent_bytes_per_step", ran.sent_per_step()},
             {"step_seconds", ran.step_seconds()},
             {"exposed_seconds", ran.exposed_seconds()},
             {"tokens_per_second", ran.tokens_a_second()},
             {"of_full", comparison.relative(one)},
             {"repeatability", ran.repeatability},
             {"as_planned", ran.ok()}};
    row["predicted"] = nullptr;
    if (ran.forecast) {
      row["predicted"] = {{"step_seconds", ran.forecast->step_seconds},
                          {"exposed_seconds", ran.forecast->exposed_seconds},
                          {"tokens_per_second", ran.forecast_tokens_a_second()}};
      if (ran.forecast->local)
        row["predicted"]["local_steps"] = {{"every", ran.forecast->local->every},
                                           {"local_seconds", ran.forecast->local->local},
                                           {"synchronizing_seconds", ran.forecast->local->synchronizing}};
    }
    row["loss"] = one.loss ? Json(*one.loss) : Json(nullptr);
    rows.push_back(row);
  }
  Json all{{"layout", to_text(run.layout)}, {"ranks", run.layout.ranks()}, {"cores", shown.cores}};
  all["link"] = nullptr;
  if (shown.link)
    all["link"] = {{"bytes_per_second", shown.link->bytes_per_second},
                   {"latency_seconds", shown.link->latency_seconds}};
  all["tokens"] = shown.tokens > 0 ? Json(shown.tokens) : Json(nullptr);
  all["techniques"] = rows;
  all["stopped"] = comparison.stopped;
  return all.dump(2) + "\n";
}

}  // namespace lockstep
