// A loss that is not a number, or jumps.
//
// A spike is judged by the steps before it, without the assumption that their noise is normal: the loss is above the
// median of the last kWindow losses by kSpikes times their usual deviation from it (at least kLeastDeviation of the
// median, since late losses hardly move), and the steps after it do not count as the new usual. Of healthy runs the
// noisiest are those of small batches: over three runs of 1,500 steps with 2, 4 and 8 samples per step the largest was
// 4.9 deviations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "telemetry/doctor/rules.h"

namespace lockstep::doctor {

namespace {

constexpr std::size_t kWindow = 50, kFewest = 8;
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
  finding.remedies.push_back("then `lockstep train --resume RUN`; train.bad_values=skip leaves such steps out");
  findings.push_back(std::move(finding));
}

}  // namespace

void find_bad_values(const RunRecords& run, std::vector<Finding>& findings) {
  find_not_finite(run, findings);
  const std::optional<Spike> spike = worst_spike(run.steps);
  if (!spike) return;
  const StepPoint& point = run.steps[spike->at];
  Finding finding{.name = "loss_spike", .severity = Severity::wrong};
  finding.summary = fmt::format(
      "the loss jumped at step {}, from {:.4g} to {:.4g}{}", point.step, spike->before.median, spike->highest,
      spike->over ? fmt::format(", and was back after {} step{}", spike->steps * static_cast<std::size_t>(run.every),
                                spike->steps * static_cast<std::size_t>(run.every) == 1 ? "" : "s")
                  : " at most, and has not come back");
  finding.evidence.push_back(fmt::format("that is {:.0f} times the usual deviation of the {} steps before",
                                         (spike->highest - spike->before.median) / spike->before.deviation,
                                         std::min(kWindow, spike->at)));
  if (known(point.grad_norm) && spike->norm > 0)
    finding.evidence.push_back(
        fmt::format("the gradient norm was {:.4g} there, {:.1f} times the usual {:.4g}; the rate {:.3g}",
                    point.grad_norm, point.grad_norm / spike->norm, spike->norm, point.lr));
  add_remedies_of_values(run, point.step, finding);
  finding.remedies.push_back("look at the data of that step: a text of another kind raises the loss for a few steps");
  findings.push_back(std::move(finding));
}

}  // namespace lockstep::doctor
