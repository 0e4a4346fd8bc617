#include "cli/train_view.h"

#include <fmt/color.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/system_failure.h"
#include "cli/plan_view.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "telemetry/number_text.h"

namespace lockstep {

TrainView::TrainView(const RunSpec& spec, const RunFolder& folder, std::int64_t first_step,
                     const std::atomic<bool>& stop)
    : spec_(spec),
      folder_(folder),
      stop_(stop),
      terminal_(on_terminal(STDOUT_FILENO)),
      colour_(takes_colour(STDOUT_FILENO)),
      metrics_(folder.metrics(), first_step),
      rank_log_(spec, 0, first_step),
      log_(folder.log()),
      first_step_(first_step),
      start_(std::chrono::steady_clock::now()) {
  tell_second_signal(log_.descriptor());
}

TrainView::~TrainView() { tell_second_signal(-1); }

// A line that cannot be written does not end the run; run_app() reports it at the end (cli/app.cpp).
void TrainView::print(const std::string& line) {
  const std::string whole = line + "\n";
  const bool written = std::fwrite(whole.data(), 1, whole.size(), stdout) == whole.size() && std::fflush(stdout) == 0;
  if (written || errno != EPIPE || nobody_reads_) return;
  nobody_reads_ = true;
  log("standard output is closed: the run saves and ends");
}

void TrainView::note(const std::string& line) {
  log(line);
  print(colour_ ? fmt::format(fmt::fg(fmt::terminal_color::yellow), "{}", line) : line);
}

void TrainView::write_metrics(const std::string& line) {
  metrics_.write(line);
  constexpr std::chrono::seconds kAgain{60};  // a disk that is full now and then is not filled with messages about it
  const auto now = std::chrono::steady_clock::now();
  if (!metrics_.failure().empty() && !metrics_told_ && (!metrics_told_at_ || now >= *metrics_told_at_ + kAgain)) {
    metrics_told_ = true;
    metrics_told_at_ = now;
    note(metrics_.failure() + "; the run continues, and the lines are written when there is room");
  } else if (metrics_.failure().empty() && metrics_told_) {
    metrics_told_ = false;
    note("metrics.jsonl is written again");
  }
}

void TrainView::resolved(const std::string& run_file) {
  try {
    folder_.write_run_file(run_file);
  } catch (const EnvironmentError& error) {
    note(fmt::format("{}; the run continues, and its checkpoints hold the resolved run file", error.what()));
  }
}

void TrainView::write_plan(const std::string& json) {
  try {
    folder_.write_plan(json);
  } catch (const EnvironmentError& error) {
    note(fmt::format("{}; the run continues without it", error.what()));
  }
}

std::string TrainView::problem() {
  metrics_.write("");
  if (!problem_.empty() || (metrics_.failure().empty() && metrics_.dropped() == 0)) return problem_;
  return metrics_.failure().empty() ? fmt::format("{}: {} lines are missing, the disk was full for too long",
                                                  folder_.metrics().string(), metrics_.dropped())
                                    : metrics_.failure() + "; its last lines are missing, checkpoints are not";
}

void TrainView::show_start(const Plan& plan, const RunData& data, const std::string& machine) {
  print(plan_table(spec_, plan));
  print(fmt::format("{:<12} {}", "machine", machine));
  if (data.floor()) print(fmt::format("{:<12} no model can do better than a loss of {:.4f}", "entropy", *data.floor()));
  print(fmt::format("{:<12} {}{}\n", "run folder", folder_.path().string(),
                    first_step_ > 0 ? fmt::format(", resuming after step {}", first_step_) : ""));
  start_ = std::chrono::steady_clock::now();
}

std::string TrainView::bar(std::int64_t step) const {
  constexpr std::int64_t kWidth = 12;
  const std::int64_t full = kWidth * step / std::max<std::int64_t>(1, spec_.train.steps);
  std::string text;
  for (std::int64_t i = 0; i < kWidth; ++i) text += i < full ? "█" : "░";
  return text;
}

void TrainView::stepped(const StepRecord& r) {
  write_held();
  held_ = r;
  rank_log_.held(r);
  if (!r.times_follow) write_held();
  if (!any_step_) first_loss_ = r.loss;
  any_step_ = true;
  last_loss_ = r.loss;
  std::int64_t held = 0;
  for (const auto& [tag, bytes] : r.bytes) held += bytes;
  const int digits = static_cast<int>(std::to_string(spec_.train.steps).size());
  std::string line = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  z {}  norm {:.3f}  lr {:.2e}  {:.0f} ms  {} tok/s  {:.1f} GFLOP/s  MFU {}  {}",
      r.step, digits, spec_.train.steps, r.loss, r.loss_z ? fmt::format("{:+.1f}", *r.loss_z) : "   -", r.grad_norm,
      r.lr, r.seconds * 1e3, grouped_digits(static_cast<std::int64_t>(r.tokens_per_s)), r.model_flops_per_s / 1e9,
      r.mfu ? fmt::format("{:.0f}%", *r.mfu * 100) : "-", byte_text(held));
  if (terminal_) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    const auto done = static_cast<double>(r.step - first_step_), left = static_cast<double>(spec_.train.steps - r.step);
    const std::string done_bar = bar(r.step);
    line = fmt::format("{} {}  ETA {}",
                       colour_ ? fmt::format(fmt::fg(fmt::terminal_color::cyan), "{}", done_bar) : done_bar, line,
                       duration_text(spent.count() / done * left));
  }
  print(line);
}

void TrainView::timed(std::int64_t step, const std::vector<TimesByUse>& times, const std::vector<SentByAxis>& sent) {
  rank_log_.timed(step, times.front(), sent);
  for (const TimesByUse& rank : times)
    for (std::size_t use = 0; use < kTimeUses; ++use) times_.seconds[use] += rank.seconds[use];
  held_->times = times;
  held_->sent = sent;
  write_held();
}

void TrainView::write_held() {
  if (held_) write_metrics(to_json_line(*held_));
  held_.reset();
}

void TrainView::evaluated(const EvalRecord& r) {
  write_metrics(to_json_line(r));
  last_eval_ = r.loss;
  any_eval_ = true;
  note(fmt::format("step {}: evaluation loss {:.4f}", r.step, r.loss));
}

void TrainView::saved(std::int64_t step) { note(fmt::format("step {}: checkpoint saved", step)); }

void TrainView::show_end(Ending ending, const Progress& progress, const Plan& plan, const Ledger& ledger,
                         std::optional<std::int64_t> outside) {
  write_held();
  print("");
  if (any_step_)
    print(fmt::format("loss {:.4f} -> {:.4f} in steps {} to {}{}", first_loss_, last_loss_, first_step_ + 1,
                      progress.step, any_eval_ ? fmt::format("; evaluation {:.4f}", last_eval_) : ""));
  if (times_.total() > 0) print("time: " + shares_text(times_));
  print(fmt::format("memory: {} predicted, {} measured{}", grouped_digits(plan.peak), grouped_digits(ledger.peak()),
                    plan.peak == ledger.peak() ? ", equal to the byte" : ""));
  if (outside)
    print(fmt::format("driver and libraries: {} predicted, {} measured", grouped_digits(plan.outside),
                      grouped_digits(*outside)));
  if (ending == Ending::stopped) {
    const std::string signal = signal_heard();
    note(fmt::format("stopped after step {}{} as asked; --resume continues from there", progress.step,
                     signal.empty() ? "" : " by " + signal));
  }
  if (ending == Ending::bad_values) note(fmt::format("stopped after {}", problem_));
  if (ending != Ending::bad_values && (spec_.train.save_last || spec_.train.save_every > 0))
    print(fmt::format("saved in {}", folder_.checkpoints().string()));
}

}  // namespace lockstep
