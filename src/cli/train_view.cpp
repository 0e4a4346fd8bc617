#include "cli/train_view.h"

#include <fmt/color.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/system_failure.h"
#include "checkpoint/state_copy.h"
#include "cli/plan_view.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "spec/model/model_flops.h"
#include "telemetry/advice.h"
#include "telemetry/number_text.h"
#include "telemetry/step_lines.h"

namespace lockstep {

namespace {
// Of samples of documents: what is in none of them.
std::string truncated_text(const DocumentIndex& index) {
  if (index.truncated() == 0) return "";
  std::string text = fmt::format("; {} more are truncated", grouped_digits(index.truncated()));
  if (index.shortened() > 0) text += fmt::format(", of {} documents", grouped_digits(index.shortened()));
  if (index.left_out() > 0)
    text += fmt::format("; {} documents without a target are left out", grouped_digits(index.left_out()));
  return text;
}

RunFacts facts_of(const RunSpec& spec) {
  const LayoutSpec& l = spec.layout;
  return {.dp = l.dp,
          .pp = l.pp,
          .cp = l.cp,
          .tp = l.tp,
          .micro = l.micro,
          .zero = l.zero,
          .micro_batch = std::max<std::int64_t>(1, spec.train.global_batch / (l.dp * l.micro)),
          .seq = spec.data.seq,
          .overlap = l.overlap == Switch::on,
          .gpu = spec.run.device == RunDevice::cuda,
          .recompute = spec.memory.recompute != Recompute::none};
}

constexpr std::size_t kMostScoredSteps = 1 << 17;

MeasuredStep measured_step(const StepRecord& record) {
  MeasuredStep step{.seconds = record.seconds};
  if (record.times.empty()) return step;
  step.waited.emplace();
  for (std::size_t a = 0; a < kWaitAxes; ++a)
    (*step.waited)[a] =
        over_ranks(record.times, static_cast<TimeUse>(static_cast<std::size_t>(TimeUse::wait_dp) + a)).mean;
  if ((*step.waited)[static_cast<std::size_t>(TimeUse::wait_pp) - static_cast<std::size_t>(TimeUse::wait_dp)] > 0)
    step.bubble = bubble_of(record.times);
  return step;
}
}  // namespace

TrainView::TrainView(const RunSpec& spec, const RunFolder& folder, std::int64_t first_step,
                     const std::atomic<bool>& stop, const TrainViewOptions& options)
    : spec_(spec),
      folder_(folder),
      stop_(stop),
      options_(options),
      colour_(takes_colour(STDOUT_FILENO)),
      status_(on_terminal(STDOUT_FILENO) && !options.quiet),
      metrics_(folder.metrics(), first_step),
      rank_log_(spec, options.rank, first_step),
      events_(folder.events(), {.last_step = first_step, .every = spec.run.record_every, .resumes = options.resumes}),
      log_(folder.log()),
      first_step_(first_step),
      start_(std::chrono::steady_clock::now()) {
  tell_second_signal(log_.descriptor());
  if (spec.sync.is_asynchronous()) arrivals_.emplace(folder.arrivals(), open_step_lines(folder.arrivals(), first_step));
  if (!spec.run.tensorboard) return;
  try {
    tensorboard_.emplace(folder.tensorboard(), first_step);
  } catch (const EnvironmentError& error) {
    note(fmt::format("nothing is written for TensorBoard: {}", error.what()));
  }
}

TrainView::~TrainView() { tell_second_signal(-1); }

// What cannot be written does not end the run; run_app() reports it at the end (cli/app.cpp).
void TrainView::write(const std::string& bytes) {
  if (bytes.empty()) return;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() && std::fflush(stdout) == 0;
  if (written || errno != EPIPE || nobody_reads_) return;
  nobody_reads_ = true;
  log("standard output is closed: the run saves and ends");
}

void TrainView::note(const std::string& line) {
  log(line);
  print(colour_ ? fmt::format(fmt::fg(fmt::terminal_color::yellow), "{}", line) : line);
}

void TrainView::tell(const std::string& line) { options_.quiet ? log(line) : note(line); }

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

// A disk that does not take it is no reason to end the run, and one note says so.
template <class Record>
void TrainView::write_tensorboard(const Record& record) {
  if (!tensorboard_) return;
  tensorboard_->write(record);
  if (tensorboard_->failure().empty() || tensorboard_told_) return;
  tensorboard_told_ = true;
  note(tensorboard_->failure() + "; the run continues, and TensorBoard may miss some of its steps");
}

// A start says how long it was set up for, and what of the try before it is done again.
void TrainView::happened(const LoggedEvent& event) {
  if (event.kind != EventKind::start || event.rank != options_.rank) return events_.write(event);
  LoggedEvent start = event;
  start.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - options_.began).count();
  if (options_.resumes) start.lost = metrics_.lost();
  events_.write(start);
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

// The last lines have as long as the last checkpoint has for a disk to take them.
std::string TrainView::problem() {
  const double patience = problem_.empty() ? spec_.train.save_retry : 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience);
  for (metrics_.write(""); !metrics_.failure().empty() && std::chrono::steady_clock::now() < until; metrics_.write(""))
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  if (!problem_.empty()) return problem_;
  if (metrics_.failure().empty() && metrics_.dropped() == 0) return closed_;
  return metrics_.failure().empty() ? fmt::format("{}: {} lines are missing, the disk was full for too long",
                                                  folder_.metrics().string(), metrics_.dropped())
                                    : metrics_.failure() + "; its last lines are missing, checkpoints are not";
}

void TrainView::show_start(const Plan& plan, const RunData& data, const std::string& machine) {
  start_ = std::chrono::steady_clock::now();
  sample_work_ = data.sample_work();
  if (spec_.changes_numbers())
    note(fmt::format("{} changes what is learned on purpose: this run is outside the claim of equal results",
                     spec_.layout.unflushed() ? fmt::format("schedule \"{}\"", name_of(spec_.layout.schedule))
                                              : std::string("[sync]")));
  if (spec_.sparsity)
    note(
        "[sparsity] changes what is learned on purpose: the claim of equal results is of layouts under the same mask, "
        "not of this run and one without it");
  if (options_.quiet) return;
  print(plan_table(spec_, plan));
  print(fmt::format("{:<12} {}", "machine", machine));
  for (const DocumentIndex* index : data.document_indexes())
    print(spec_.data.documents == Documents::varlen
              ? fmt::format("{:<12} {} samples of {:.1f} tokens on average, and no padding, of {} tokens{}",
                            "documents", grouped_digits(index->samples()),
                            index->filled() * static_cast<double>(index->T()), grouped_digits(index->tokens()),
                            truncated_text(*index))
              : fmt::format("{:<12} {} samples {:.1f}% full of {} tokens{}", "documents",
                            grouped_digits(index->samples()), index->filled() * 100, grouped_digits(index->tokens()),
                            truncated_text(*index)));
  if (data.marks_targets()) print(fmt::format("{:<12} tokens of answers alone count in loss and accuracy", "targets"));
  if (data.floor()) print(fmt::format("{:<12} no model can do better than a loss of {:.4f}", "entropy", *data.floor()));
  print(fmt::format("{:<12} {}{}\n", "run folder", folder_.path().string(),
                    first_step_ > 0 ? fmt::format(", resuming after step {}", first_step_) : ""));
  write(status_.draw(fmt::format("{} {}/{}  the first step", bar(first_step_), first_step_, spec_.train.steps)));
}

std::string TrainView::bar(std::int64_t step) const {
  constexpr std::int64_t kWidth = 12;
  const std::int64_t full = kWidth * step / std::max<std::int64_t>(1, spec_.train.steps);
  std::string text;
  for (std::int64_t i = 0; i < kWidth; ++i) text += i < full ? "█" : "░";
  return text;
}

void TrainView::stepped(const StepRecord& r) {
  if (!r.arrivals.empty()) arrivals_->write(to_json_lines(r.step, r.arrivals, r.changes));
  write_held();
  held_ = r;
  rank_log_.held(r);
  if (!r.times_follow) write_held();
  if (!any_step_) first_loss_ = r.loss;
  mfu_.add(r.mfu.value_or(std::numeric_limits<double>::quiet_NaN()), r.seconds);
  any_step_ = true;
  last_loss_ = r.loss;
  if (options_.quiet) return;
  std::int64_t held = 0;
  for (const auto& [tag, bytes] : r.bytes) held += bytes;
  const int digits = static_cast<int>(std::to_string(spec_.train.steps).size());
  last_step_ = fmt::format(
      "step {:>{}}/{}  loss {:.4f}  z {}  norm {:.3f}  lr {:.2e}  {:.0f} ms  {} tok/s  {:.1f} GFLOP/s  MFU {}  {}",
      r.step, digits, spec_.train.steps, r.loss, r.loss_z ? fmt::format("{:+.1f}", *r.loss_z) : "   -", r.grad_norm,
      r.lr, r.seconds * 1e3, grouped_digits(static_cast<std::int64_t>(r.tokens_per_s)), r.model_flops_per_s / 1e9,
      r.mfu ? fmt::format("{:.0f}%", *r.mfu * 100) : "-", byte_text(held));
  const std::int64_t every = options_.log_every > 0 ? options_.log_every : status_.shown() ? 0 : 1;
  if (every > 0 && r.step % every == 0) print_last_step();
  show_status(r);
}

void TrainView::print_last_step() {
  if (!last_step_.empty()) print(std::exchange(last_step_, ""));
}

void TrainView::show_status(const StepRecord& r) {
  if (!status_.shown()) return;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  const auto done = static_cast<double>(r.step - first_step_), left = static_cast<double>(spec_.train.steps - r.step);
  const std::string done_bar = bar(r.step);
  const std::optional<double> mfu = mfu_.value();
  write(status_.draw(fmt::format("{} {}/{}  ETA {}  loss {:.4f}  {} tok/s{}",
                                 colour_ ? fmt::format(fmt::fg(fmt::terminal_color::cyan), "{}", done_bar) : done_bar,
                                 r.step, spec_.train.steps, duration_text(spent.count() / done * left), r.loss,
                                 grouped_digits(static_cast<std::int64_t>(r.tokens_per_s)),
                                 mfu ? fmt::format("  MFU {:.0f}% {}", *mfu * 100, name_of(mfu_band(*mfu))) : "")));
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
  if (held_ && predicted_ && measured_.size() < kMostScoredSteps) measured_.push_back(measured_step(*held_));
  if (held_) write_metrics(to_json_line(*held_)), write_tensorboard(*held_);
  held_.reset();
}

void TrainView::evaluated(const EvalRecord& r) {
  write_metrics(to_json_line(r));
  write_tensorboard(r);
  last_eval_ = r.loss;
  any_eval_ = true;
  tell(fmt::format("step {}: evaluation loss {:.4f}{}", r.step, r.loss,
                   r.accuracy ? fmt::format(", accuracy {:.1f}%", 100 * *r.accuracy) : ""));
}

void TrainView::saved(std::int64_t step) { tell(fmt::format("step {}: checkpoint saved", step)); }

void TrainView::show_end(Ending ending, const Progress& progress, const Plan& plan, const Ledger& ledger,
                         std::optional<std::int64_t> outside) {
  write_held();
  print_last_step();
  write(status_.take_away());
  const bool told = !options_.quiet;
  if (told) show_sums(progress, plan, ledger, outside);
  if (nobody_reads_)
    closed_ = ending == Ending::stopped
                  ? fmt::format(
                        "standard output was closed by its reader: the run has saved after step {} and ended; "
                        "`lockstep train --resume {}` continues it",
                        progress.step, folder_.path().string())
                  : "standard output was closed by its reader; all steps are done";
  if (ending == Ending::stopped && !nobody_reads_) {
    const std::string signal = signal_heard();
    note(fmt::format("stopped after step {}{} as asked; --resume continues from there", progress.step,
                     signal.empty() ? "" : " by " + signal));
  }
  if (ending == Ending::bad_values) log(problem_);  // standard error has it too
  if (told && ending != Ending::bad_values && (spec_.train.save_last || spec_.train.save_every > 0))
    print(fmt::format("saved in {}", folder_.checkpoints().string()));
}

void TrainView::show_sums(const Progress& progress, const Plan& plan, const Ledger& ledger,
                          std::optional<std::int64_t> outside) {
  print("");
  if (any_step_)
    print(fmt::format("loss {:.4f} -> {:.4f} in steps {} to {}{}", first_loss_, last_loss_, first_step_ + 1,
                      progress.step, any_eval_ ? fmt::format("; evaluation {:.4f}", last_eval_) : ""));
  if (times_.total() > 0) print("time: " + shares_text(times_));
  show_verdict();
  show_score();
  // Copies of the state in memory are left out where they do not fit, so the peak of a plan is without them.
  const bool copies =
      std::ranges::any_of(ledger.rows(), [](const auto& row) { return row.first.second == kCopiesUnit; });
  const std::int64_t predicted = plan.peak + (copies ? plan.copies.process : 0);
  print(fmt::format("memory: {} predicted, {} measured{}", grouped_digits(predicted), grouped_digits(ledger.peak()),
                    predicted == ledger.peak() ? ", equal to the byte" : ""));
  if (outside)
    print(fmt::format("driver and libraries: {} predicted, {} measured", grouped_digits(plan.outside),
                      grouped_digits(*outside)));
}

void TrainView::show_score() {
  if (!predicted_ || measured_.empty()) return;
  for (const auto& [what, text] : score_lines(score_prediction(*predicted_, measured_)))
    print(fmt::format("{}: {} (machine {})", what, text, predicted_->machine));
}

// Of the whole run: MFU by both usual counts of a step's work, and below "good" what would raise it.
void TrainView::show_verdict() {
  const std::optional<double> mfu = mfu_.value();
  if (!mfu) return;
  const double tokens = static_cast<double>(spec_.train.global_batch) * sample_work_.tokens;
  const double by_6n = 6 * static_cast<double>(parameter_count(spec_.model)) * tokens /
                       model_flops(spec_.model, spec_.train.global_batch, sample_work_);
  const MfuBand band = mfu_band(*mfu);
  print(fmt::format("MFU: {:.1f}% with attention, {:.1f}% by 6N (6 FLOPs per parameter and token): {}", *mfu * 100,
                    *mfu * by_6n * 100, name_of(band)));
  if (band == MfuBand::above_peak) print(std::string(kAbovePeak));
  if (band == MfuBand::fair || band == MfuBand::poor) print("to raise it: " + mfu_advice(times_, facts_of(spec_)).text);
}

}  // namespace lockstep
