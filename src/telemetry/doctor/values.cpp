// A loss that is not a number, jumps, or rises from the start.
//
// A spike is judged by the steps before it, without the assumption that their noise is normal: the loss is above the
// median of the last kWindow losses by kSpikes times their usual deviation from it (at least kLeastDeviation of the
// median, since late losses hardly move), and the steps after it do not count as the new usual. Of healthy runs the
// noisiest are those of small batches: over three runs of 1,500 steps with 2, 4 and 8 samples per step the largest was
// 4.9 deviations.
//
// A loss that rises from the first step has no usual before it. The run has diverged when the median of its last
// kLastLosses (of half of them, while there are few) is kAboveFirst times the first loss, or kAboveBeginning times the
// median of the first kLastLosses. A run that learns is below 1 in the end, and while it begins only noise lifts it:
// llama-1m on text with 1 and 2 samples of 64 bytes per step, and a model of 20,000 parameters with 1, 2 and 4 samples
// of 16 tokens, reached at most 1.38 and 1.17, with every second of their 2,400 steps taken as the first one, as when a
// trained model is trained on. With a rate that is a thousand times too high the same models reach 1.7 to 90.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <limits>

#include "telemetry/doctor/rules.h"

namespace lockstep::doctor {

namespace {

constexpr std::size_t kWindow = 50, kFewest = 8;
constexpr std::size_t kLastLosses = 20, kFewestLosses = 12;
constexpr double kAboveFirst = 1.5, kAboveBeginning = 1.3;
constexpr double kSpikes = 8, kLeastDeviation = 0.02, kToNormal = 1.4826;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Usual {
  double median = 0, deviation = 0;
};
Usual usual_of(const std::deque<double>& last) {
  std::vector<double> values(last.begin(), last.end());
  const double median = median_of(values);
  for (double& value : values) value = std::abs(value - median);
  return {median, std::max(kToNormal * median_of(values), kLeastDeviation * std::abs(median))};
}

struct Spike {
  std::size_t at = 0, steps = 0;  // place in the records, and how many of them are that high
  Usual before;
  double norm = 0;  // the usual one before
  double highest = 0;
  bool over = false;
};

// The worst one, by its height above the usual.
std::optional<Spike> worst_spike(const std::vector<StepPoint>& steps) {
  std::deque<double> losses, norms;
  std::optional<Spike> worst, now;
  const auto close = [&] {
    if (now && (!worst || now->highest - now->before.median > worst->highest - worst->before.median)) worst = now;
    now.reset();
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepPoint& point = steps[i];
    if (!known(point.loss)) continue;
    if (losses.size() >= kFewest) {
      // Far below the window's last loss nothing can be a spike; sorting is for the few others.
      const bool above = point.loss > *std::ranges::max_element(losses);
      const Usual usual = now ? now->before : above ? usual_of(losses) : Usual{};
      if ((now || above) && point.loss > usual.median + kSpikes * usual.deviation) {
        if (!now)
          now = Spike{.at = i, .before = usual, .norm = norms.empty() ? 0 : median_of({norms.begin(), norms.end()})};
        ++now->steps;
        now->highest = std::max(now->highest, point.loss);
        continue;
      }
      if (now) now->over = true;
      close();
    }
    losses.push_back(point.loss);
    if (known(point.grad_norm)) norms.push_back(point.grad_norm);
    if (losses.size() > kWindow) losses.pop_front();
    if (norms.size() > kWindow) norms.pop_front();
  }
  close();
  return worst;
}

void add_remedies_of_values(const RunRecords& run, std::int64_t step, Finding& finding) {
  const std::optional<double> lr = run.plan.lr;
  finding.remedies.push_back(lr ? fmt::format("lower optim.lr (now {:g}), to {:g} first", *lr, *lr / 3)
                                : "lower optim.lr to a third");
  if (const auto warmup = run.plan.warmup; !warmup || step <= 2 * *warmup + 100)
    finding.remedies.push_back(fmt::format("raise the rate more slowly with optim.warmup{}",
                                           warmup ? fmt::format(" (now {} steps)", *warmup) : ""));
  if (const auto clip = run.plan.clip; !clip || *clip == 0)
    finding.remedies.push_back("clip gradients with optim.clip=1.0");
  else
    finding.remedies.push_back(fmt::format("clip gradients harder with optim.clip (now {:g})", *clip));
  if (run.plan.precision == "fp16")
    finding.remedies.push_back("compute with precision.compute=bf16, whose range is that of fp32");
  if (run.plan.precision == "bf16")
    finding.remedies.push_back("compare with precision.compute=fp32: if that is stable, rounding is the cause");
}

const StepPoint* point_before(const RunRecords& run, std::int64_t step) {
  const StepPoint* found = nullptr;
  for (const StepPoint& point : run.steps)
    if (point.step < step && known(point.loss)) found = &point;
  return found;
}

constexpr std::int64_t kAnyStep = std::numeric_limits<std::int64_t>::max();

// The command that trains again, with a lower rate, from the newest checkpoint of a step before `step`: what was saved
// in that step itself has the weights that made the trouble.
std::string restart_before(const RunRecords& run, std::int64_t step) {
  const std::string rate = run.plan.lr ? fmt::format(" --set optim.lr={:g}", *run.plan.lr / 3) : "";
  const auto after = run.checkpoints.lower_bound(step);
  if (after != run.checkpoints.begin())
    return fmt::format("`lockstep train --resume {}{}`: the newest checkpoint{}",
                       shell_quoted((run.folder / "checkpoints" / std::prev(after)->second).string()), rate,
                       step == kAnyStep ? "" : " before it");
  return fmt::format("`lockstep train {} --out {} --overwrite{}`: no checkpoint is from before it",
                     shell_quoted((run.folder / "run.toml").string()), shell_quoted(run.folder.string()), rate);
}

void find_not_finite(const RunRecords& run, std::vector<Finding>& findings) {
  std::string line;
  for (const std::string& one : log_of_last_attempt(run))
    if (line.empty() && one.find("not finite") != std::string::npos) line = one;
  const std::int64_t step = run.first_not_updated >= 0 ? run.first_not_updated : run.first_bad_loss;
  if (step < 0 && line.empty()) return;
  Finding finding{.name = "not_finite", .severity = Severity::stopped};
  finding.summary = step >= 0
                        ? fmt::format("a value was not finite in step {}: {}", step,
                                      run.not_updated > 1 ? fmt::format("{} steps changed nothing", run.not_updated)
                                                          : "nothing was updated")
                        : "a weight is not finite";
  if (!line.empty()) finding.evidence.push_back("log.txt: " + line);
  if (const StepPoint* before = point_before(run, step))
    finding.evidence.push_back(fmt::format("the step before, {}, had loss {:.4g}, gradient norm {:.4g}, rate {:.3g}",
                                           before->step, before->loss, before->grad_norm, before->lr));
  add_remedies_of_values(run, std::max<std::int64_t>(step, 0), finding);
  const bool over = run.last.updated && known(run.last.loss);  // such steps were skipped, and the run went on
  finding.remedies.push_back(fmt::format("then {}; train.bad_values=skip leaves such steps out",
                                         restart_before(run, step < 0 || over ? kAnyStep : step)));
  findings.push_back(std::move(finding));
}

// The run has diverged: from its first steps on, so that no step jumps.
void find_diverged(const RunRecords& run, std::vector<Finding>& findings) {
  std::vector<double> losses;
  for (const StepPoint& point : run.steps)
    if (known(point.loss)) losses.push_back(point.loss);
  if (losses.size() < kFewestLosses) return;
  const auto window = static_cast<std::ptrdiff_t>(std::min(kLastLosses, losses.size() / 2));
  const double last = median_of({losses.end() - window, losses.end()});
  const double beginning = median_of({losses.begin(), losses.begin() + window});
  const bool early = losses.size() < 2 * kLastLosses;
  if (last < kAboveFirst * losses.front() && (early || last < kAboveBeginning * beginning)) return;
  Finding finding{.name = "diverged", .severity = Severity::wrong};
  finding.summary = fmt::format("the loss has risen instead of fallen: from {:.4g} at the first step to {:.4g}",
                                losses.front(), last);
  finding.evidence.push_back(
      fmt::format("medians: {:.4g} of the first {} losses, {:.4g} of the last {}; the lowest was "
                  "{:.4g}",
                  beginning, window, last, window, *std::ranges::min_element(losses)));
  finding.evidence.push_back(fmt::format("in step {} the gradient norm was {:.4g}, the rate {:.3g}", run.last.step,
                                         run.last.grad_norm, run.last.lr));
  const std::int64_t first = run.steps.front().step;
  add_remedies_of_values(run, first, finding);
  finding.remedies.push_back(fmt::format("then {}", restart_before(run, first)));
  findings.push_back(std::move(finding));
}

void add_spike(const RunRecords& run, const Spike& spike, std::vector<Finding>& findings) {
  const StepPoint& point = run.steps[spike.at];
  Finding finding{.name = "loss_spike", .severity = Severity::wrong};
  finding.summary = fmt::format(
      "the loss jumped at step {}, from {:.4g} to {:.4g}{}", point.step, spike.before.median, spike.highest,
      spike.over ? fmt::format(", and was back after {} step{}", spike.steps * static_cast<std::size_t>(run.every),
                               spike.steps * static_cast<std::size_t>(run.every) == 1 ? "" : "s")
                 : " at most, and has not come back");
  finding.evidence.push_back(fmt::format("that is {:.0f} times the usual deviation of the {} steps before",
                                         (spike.highest - spike.before.median) / spike.before.deviation,
                                         std::min(kWindow, spike.at)));
  if (known(point.grad_norm) && spike.norm > 0)
    finding.evidence.push_back(
        fmt::format("the gradient norm was {:.4g} there, {:.1f} times the usual {:.4g}; the rate {:.3g}",
                    point.grad_norm, point.grad_norm / spike.norm, spike.norm, point.lr));
  add_remedies_of_values(run, point.step, finding);
  if (!spike.over) finding.remedies.push_back(fmt::format("then {}", restart_before(run, point.step)));
  finding.remedies.push_back("look at the data of that step: a text of another kind raises the loss for a few steps");
  findings.push_back(std::move(finding));
}

}  // namespace

void find_bad_values(const RunRecords& run, std::vector<Finding>& findings) {
  const std::size_t before = findings.size();
  find_not_finite(run, findings);
  const bool not_finite = findings.size() > before;
  const std::optional<Spike> spike = worst_spike(run.steps);
  if (spike) add_spike(run, *spike, findings);
  // One trouble is one finding: after a value or a jump that stayed, the loss has risen because of it.
  if (!not_finite && (!spike || spike->over)) find_diverged(run, findings);
}

}  // namespace lockstep::doctor
