#include "dashboard/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {

// Bytes that are not UTF-8 become U+FFFD, as in every other answer.
std::string as_utf8(std::string_view text) {
  using nlohmann::json;
  return json::parse(json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

std::string sample_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Exposition {
 public:
  explicit Exposition(const std::vector<RunSummary>& runs) : runs_(runs) {}

  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(text), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void sample(const RunSummary& run, double value, std::string_view label = "", std::string_view label_value = "") {
    if (!known(value)) return;
    fmt::format_to(std::back_inserter(text), "{}{{run=\"{}\"", name_, label_text(run.name));
    if (!label.empty()) fmt::format_to(std::back_inserter(text), ",{}=\"{}\"", label, label_text(label_value));
    fmt::format_to(std::back_inserter(text), "}} {}\n", sample_text(value));
  }
  template <class Value>
  void gauge(std::string_view name, std::string_view help, Value value) {
    begin(name, "gauge", help);
    for (const RunSummary& run : runs_) sample(run, value(run));
  }

  std::string text;

 private:
  const std::vector<RunSummary>& runs_;
  std::string_view name_;
};

double count_or_unknown(std::int64_t count) { return count < 0 ? kUnknown : static_cast<double>(count); }

}  // namespace

std::string label_text(std::string_view value) {
  std::string text;
  for (const char c : as_utf8(value)) {
    if (c == '\\')
      text += "\\\\";
    else if (c == '"')
      text += "\\\"";
    else if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text;
}

std::string exposition(const std::vector<RunSummary>& runs) {
  Exposition out(runs);
  out.gauge("lockstep_step", "Steps done.", [](const RunSummary& r) { return count_or_unknown(r.last.step); });
  out.gauge("lockstep_steps_planned", "Steps that the run shall do.",
            [](const RunSummary& r) { return r.steps ? static_cast<double>(*r.steps) : kUnknown; });
  out.gauge("lockstep_loss", "Training loss of the last step.", [](const RunSummary& r) { return r.last.loss; });
  out.gauge("lockstep_eval_loss", "Loss of the last evaluation.", [](const RunSummary& r) { return r.eval_loss; });
  out.gauge("lockstep_eval_accuracy_ratio",
            "Share of next tokens that were the likeliest in the last evaluation, 0 to 1.",
            [](const RunSummary& r) { return r.eval_accuracy; });
  out.gauge("lockstep_learning_rate", "Learning rate of the last step.", [](const RunSummary& r) { return r.last.lr; });
  out.gauge("lockstep_gradient_norm", "Norm of the gradient before clipping.",
            [](const RunSummary& r) { return r.last.grad_norm; });
  out.gauge("lockstep_tokens_per_second", "Tokens per second in the last step.",
            [](const RunSummary& r) { return r.last.tokens_per_s; });
  out.gauge("lockstep_mfu_ratio", "Model FLOPs over the machine's peak, 0 to 1.",
            [](const RunSummary& r) { return r.last.mfu; });
  out.gauge("lockstep_step_seconds", "Duration of the last step.", [](const RunSummary& r) { return r.last.seconds; });
  out.gauge("lockstep_bubble_ratio", "Share of the step in which pipeline stages wait for each other.",
            [](const RunSummary& r) { return static_cast<double>(r.last.bubble); });
  out.gauge("lockstep_last_step_timestamp_seconds", "When the last step ended, since 1970.",
            [](const RunSummary& r) { return r.last.time; });
  out.gauge("lockstep_remaining_seconds", "Time to the last planned step at the present pace.",
            [](const RunSummary& r) { return r.seconds_left; });
  out.gauge("lockstep_ranks", "Ranks of the run.", [](const RunSummary& r) { return static_cast<double>(r.ranks); });
  out.gauge("lockstep_slowest_rank", "The rank that was busy longest in the last step.",
            [](const RunSummary& r) { return count_or_unknown(r.last.slowest_rank); });
  out.gauge("lockstep_steps_not_updated", "Steps that changed nothing because a value was not finite.",
            [](const RunSummary& r) { return static_cast<double>(r.not_updated); });

  const auto of_launch = [](const RunSummary& r, std::int64_t value) {
    return r.health.launched ? static_cast<double>(value) : kUnknown;
  };
  out.gauge("lockstep_goodput_ratio", "Share of all time since the run began that went into steps that count, 0 to 1.",
            [](const RunSummary& r) { return r.health.goodput ? r.health.goodput->share() : kUnknown; });
  out.gauge("lockstep_epoch", "Membership epoch of `lockstep launch`.",
            [&](const RunSummary& r) { return of_launch(r, r.health.epoch); });
  out.gauge("lockstep_restarts", "Restarts by `lockstep launch`.",
            [&](const RunSummary& r) { return of_launch(r, r.health.restarts); });
  out.gauge("lockstep_slow_ranks", "Ranks at less than half the speed of their peers.",
            [](const RunSummary& r) { return static_cast<double>(r.health.slow.size()); });
  out.gauge("lockstep_last_fault_timestamp_seconds", "When the last fault was found, since 1970.",
            [](const RunSummary& r) { return r.health.fault ? r.health.fault->time : kUnknown; });
  out.gauge(
      "lockstep_last_fault_cost_seconds", "From the last fault's discovery to the next completed step.",
      [](const RunSummary& r) { return r.health.fault ? r.health.fault->cost_seconds.value_or(kUnknown) : kUnknown; });
  out.begin("lockstep_hosts", "gauge", "Hosts of `lockstep launch`, by role.");
  for (const RunSummary& run : runs)
    for (int role = 0; role < kHostRoles && run.health.launched; ++role)
      out.sample(
          run,
          static_cast<double>(std::ranges::count(run.health.hosts, static_cast<HostRole>(role), &LaunchedHost::role)),
          "role", name_of(static_cast<HostRole>(role)));
  out.begin("lockstep_time_seconds", "gauge", "Where the run's time went, by part; the parts add up to the whole.");
  for (const RunSummary& run : runs)
    if (run.health.goodput)
      for (const auto& [part, seconds] : run.health.goodput->parts()) out.sample(run, seconds, "part", part);
  out.begin("lockstep_state", "gauge", "1 for the state that the run is in, 0 for the others.");
  for (const RunSummary& run : runs)
    for (const RunState state : {RunState::starting, RunState::running, RunState::stalled, RunState::recovering,
                                 RunState::waiting, RunState::stopped, RunState::ended})
      out.sample(run, run.state == state ? 1 : 0, "state", name_of(state));
  out.begin("lockstep_use_seconds", "gauge", "Where the last step's time went, mean over ranks.");
  for (const RunSummary& run : runs)
    for (std::size_t use = 0; use < kTimeUseNames.size() && run.last.has_times(); ++use)
      out.sample(run, run.last.mean[use], "use", kTimeUseNames[use]);
  out.begin("lockstep_memory_bytes", "gauge", "Bytes that rank 0 holds after the step, by tag.");
  for (const RunSummary& run : runs)
    for (const auto& [tag, bytes] : run.bytes) out.sample(run, static_cast<double>(bytes), "tag", tag);
  out.begin("lockstep_memory_peak_bytes", "gauge", "Bytes that rank 0 held at most, by tag.");
  for (const RunSummary& run : runs)
    for (const auto& [tag, bytes] : run.peak_bytes) out.sample(run, static_cast<double>(bytes), "tag", tag);
  out.begin("lockstep_sent_bytes", "gauge", "Bytes that rank 0 sent in the last step, by axis.");
  for (const RunSummary& run : runs)
    for (const auto& [axis, sent] : run.sent) out.sample(run, static_cast<double>(sent.bytes), "axis", axis);
  return std::move(out.text);
}

}  // namespace lockstep
