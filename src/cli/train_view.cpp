#include "cli/train_view.h"

#include <fmt/color.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "cli/plan_view.h"
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
      log_(std::fopen(folder.log().c_str(), "a")),
      first_step_(first_step),
      start_(std::chrono::steady_clock::now()) {
  if (!log_) throw EnvironmentError(fmt::format("{}: cannot be opened for writing", folder.log().string()));
}

TrainView::~TrainView() { std::fclose(log_); }

void TrainView::print(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void TrainView::note(const std::string& line) {
  print(colour_ ? fmt::format(fmt::fg(fmt::terminal_color::yellow), "{}", line) : line);
  fmt::print(log_, "{}\n", line);
  std::fflush(log_);
}

void TrainView::show_start(const Plan& plan, const RunData& data, const std::string& machine) {
  print(plan_table(spec_, plan));
  print(fmt::format("{:<12} {}", "machine", machine));
  if (data.floor()) print(fmt::format("{:<12} no model can do better than a loss of {:.4f}", "entropy", *data.floor()));
  print(fmt::format("{:<12} {}{}\n", "run folder", folder_.path().string(),
                    first_step_ > 0 ? fmt::format(", going on after step {}", first_step_) : ""));
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
  metrics_.write(to_json_line(r));
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

void TrainView::evaluated(const EvalRecord& r) {
  metrics_.write(to_json_line(r));
  last_eval_ = r.loss;
  any_eval_ = true;
  note(fmt::format("step {}: evaluation loss {:.4f}", r.step, r.loss));
}

void TrainView::saved(std::int64_t step) { note(fmt::format("step {}: checkpoint", step)); }

void TrainView::show_end(Ending ending, const Progress& progress, const Plan& plan, const Ledger& ledger,
                         std::optional<std::int64_t> outside) {
  print("");
  if (any_step_)
    print(fmt::format("loss {:.4f} -> {:.4f} in steps {} to {}{}", first_loss_, last_loss_, first_step_ + 1,
                      progress.step, any_eval_ ? fmt::format("; evaluation {:.4f}", last_eval_) : ""));
  print(fmt::format("memory: {} predicted, {} measured{}", grouped_digits(plan.peak), grouped_digits(ledger.peak()),
                    plan.peak == ledger.peak() ? ", equal to the byte" : ""));
  if (outside)
    print(fmt::format("driver and libraries: {} predicted, {} measured", grouped_digits(plan.outside),
                      grouped_digits(*outside)));
  if (ending == Ending::stopped)
    note(fmt::format("stopped after step {} as asked; --resume goes on from there", progress.step));
  if (ending == Ending::bad_values)
    note(fmt::format("stopped after step {}: bad values; the last good weights are saved", progress.step));
  if (spec_.train.save_last || spec_.train.save_every > 0)
    print(fmt::format("saved in {}", folder_.checkpoints().string()));
}

}  // namespace lockstep
