#include "telemetry/step_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {
using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }

Json bytes(const BytesByTag& by_tag) {
  Json object = Json::object();
  for (const auto& [tag, count] : by_tag) object[tag] = count;
  return object;
}

Json uses(const std::vector<TimesByUse>& times) {
  Json object = Json::object();
  for (int u = 0; u < kTimeUses; ++u) {
    const TimeUse use = static_cast<TimeUse>(u);
    if (const UseOverRanks all = over_ranks(times, use); all.most > 0)
      object[std::string(name_of(use))] = {{"mean_ms", all.mean * 1e3}, {"max_ms", all.most * 1e3}, {"rank", all.rank}};
  }
  return object;
}

Json sent_json(const std::vector<SentByAxis>& sent) {
  Json object = Json::object();
  for (const SentByAxis& one : sent)
    if (one.calls > 0) {
      Json& axis = object[std::string(one.axis)] = {{"calls", one.calls}, {"bytes", one.bytes}};
      if (one.seconds > 0) axis["ms"] = one.seconds * 1e3;
      if (const auto share = one.of_link()) axis["of_link"] = *share;
    }
  return object;
}
}  // namespace

std::string to_json_line(const StepRecord& r) {
  Json line{{"step", r.step},
            {"loss", number(r.loss)},
            {"loss_z", number(r.loss_z)},
            {"grad_norm", number(r.grad_norm)},
            {"lr", number(r.lr)},
            {"step_ms", number(r.seconds * 1e3)},
            {"tokens_per_s", number(r.tokens_per_s)},
            {"model_flops_per_s", number(r.model_flops_per_s)},
            {"mfu", number(r.mfu)},
            {"updated", r.updated}};
  if (r.loss_scale) {
    line["loss_scale"] = *r.loss_scale;
    line["overflow"] = r.overflow;
  }
  if (r.skipped) line["skipped"] = *r.skipped;
  if (!r.arrivals.empty()) {
    const Staleness staleness = staleness_of(r.arrivals);
    line["staleness_mean"] = staleness.mean;
    line["staleness_max"] = staleness.most;
  }
  if (r.divergence) line["divergence"] = number(*r.divergence);
  if (r.compression_error) line["compression_error"] = number(*r.compression_error);
  line["bytes"] = bytes(r.bytes);
  line["peak_bytes"] = bytes(r.peak_bytes);
  line["time"] = number(r.time);
  if (!r.times.empty()) {
    line["uses"] = uses(r.times);
    if (line["uses"].contains(name_of(TimeUse::wait_pp))) line["bubble"] = bubble_of(r.times);
    line["slowest_rank"] = slowest_rank(r.times);
    line["sent"] = sent_json(r.sent);
  }
  return line.dump() + "\n";
}

std::optional<double> SentByAxis::of_link() const {
  if (!link || !(*link > 0) || !(seconds > 0) || bytes == 0) return std::nullopt;
  return static_cast<double>(bytes) / seconds / *link;
}

double bubble_of(const std::vector<TimesByUse>& times) {
  double waited = 0, steps = 0;
  for (const TimesByUse& rank : times) {
    waited += rank[TimeUse::wait_pp];
    steps += rank.total() - rank[TimeUse::save] - rank[TimeUse::evaluate];
  }
  return steps > 0 ? waited / steps : 0;
}

std::string rank_json(std::int64_t step, const TimesByUse& times, const std::vector<SentByAxis>& sent,
                      const HeldMemory* memory) {
  Json by_use = Json::object();
  for (int use = 0; use < kTimeUses; ++use)
    if (const double seconds = times[static_cast<TimeUse>(use)]; seconds > 0)
      by_use[std::string(name_of(static_cast<TimeUse>(use)))] = seconds * 1e3;
  Json line{{"step", step}, {"ms", times.total() * 1e3}, {"uses", by_use}, {"sent", sent_json(sent)}};
  if (memory) {
    line["bytes"] = bytes(memory->bytes);
    line["peak_bytes"] = bytes(memory->peak_bytes);
  }
  return line.dump();
}

UseOverRanks over_ranks(const std::vector<TimesByUse>& times, TimeUse use) {
  UseOverRanks all;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    const double seconds = times[rank][use];
    all.mean += seconds / static_cast<double>(times.size());
    if (seconds > all.most) all.most = seconds, all.rank = static_cast<int>(rank);
  }
  return all;
}

int slowest_rank(const std::vector<TimesByUse>& times) {
  return static_cast<int>(std::ranges::max_element(times, {}, &TimesByUse::busy) - times.begin());
}

std::string to_json_line(const EvalRecord& r) {
  return Json{{"step", r.step},
              {"eval_loss", number(r.loss)},
              {"eval_accuracy", number(r.accuracy)},
              {"time", number(r.time)}}
             .dump() +
         "\n";
}

std::string shares_text(const TimesByUse& times) {
  const double all = times.total();
  std::vector<std::pair<double, TimeUse>> shares;
  for (int use = 0; use < kTimeUses; ++use)
    if (times.seconds[static_cast<std::size_t>(use)] >= 0.01 * all && all > 0)
      shares.emplace_back(times.seconds[static_cast<std::size_t>(use)] / all, static_cast<TimeUse>(use));
  std::ranges::stable_sort(shares, std::greater<>(), &std::pair<double, TimeUse>::first);
  std::string text;
  for (const auto& [share, use] : shares)
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", name_of(use), share * 100);
  return text;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
