#include "train/layout_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "train/key_bias.h"

namespace lockstep {

bool LayoutReport::ok() const {
  return !(itself && itself->first) &&
         std::ranges::none_of(verdicts, [](const LayoutVerdict& v) { return v.first.has_value(); });
}

namespace {

constexpr double kToleranceInDouble = 1e-11;
// Adam divides a gradient by its own size: where one is near zero, and the weight began there (a bias), rounding moves
// the weight by more than it moved the gradient.
constexpr double kWeightsBy = 10;

enum class By { bits, tolerance, nothing };

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

// A step's values compared with the first layout's.
class Comparison {
 public:
  Comparison(LayoutVerdict& verdict, By by, const ModelSpec& model) : verdict_(verdict), by_(by), model_(model) {}

  void step(std::int64_t step, const TrialStep& mine, const TrialStep& theirs) {
    const std::string where = mine.rank == 0 ? "" : fmt::format(" on rank {}", mine.rank);
    number(step, "the loss" + where, mine.loss, theirs.loss, verdict_.loss);
    tensors(step, "the gradient of {}" + where, mine.gradients, theirs.gradients, false, verdict_.gradient);
    number(step, "the gradient's norm" + where, mine.norm, theirs.norm, verdict_.norm);
    tensors(step, "the weight {}" + where, mine.weights, theirs.weights, true, verdict_.weight);
  }

 private:
  void number(std::int64_t step, const std::string& what, double mine, double theirs, double& largest) {
    const double error = std::abs(mine - theirs) / std::max(std::abs(theirs), 1e-300);
    judge(step, what, error, mine != theirs, 1, verdict_.tolerance, largest);
  }

  void tensors(std::int64_t step, const std::string& what, const TrialTensors& mine, const TrialTensors& theirs,
               bool weights, double& largest) {
    double squares = 0;
    for (const auto& [name, values] : theirs) squares += std::pow(norm_of(values), 2);
    const double floor = std::max(1e-6 * std::sqrt(squares), 1e-300);
    for (const auto& [name, values] : mine) {
      const std::vector<double>& others = theirs.at(name);
      const auto noise = weights && by_ != By::bits ? key_bias_of(model_, name) : std::nullopt;
      double sum = 0;
      std::int64_t different = 0;
      for (std::int64_t e = 0; e < std::ssize(values); ++e) {
        if (noise && e >= noise->first && e < noise->second) continue;
        const auto i = static_cast<std::size_t>(e);
        sum += (values[i] - others[i]) * (values[i] - others[i]);
        different += std::memcmp(&values[i], &others[i], sizeof(double)) != 0;
      }
      judge(step, fmt::format(fmt::runtime(what), name), std::sqrt(sum) / std::max(norm_of(others), floor),
            different > 0, different, (weights ? kWeightsBy : 1) * verdict_.tolerance, largest);
    }
  }

  void judge(std::int64_t step, const std::string& what, double error, bool bits, std::int64_t elements,
             double tolerance, double& largest) {
    if (!(error <= largest)) largest = error;
    const bool fine = by_ == By::nothing || (by_ == By::bits ? !bits : error <= tolerance);
    if (!verdict_.first && !fine) verdict_.first = Difference{step + 1, what, error, elements};
  }

  LayoutVerdict& verdict_;
  By by_;
  const ModelSpec& model_;
};

// Ranks of one copy that hold other values than the rank that answers for them.
void check_within(LayoutVerdict& verdict, std::int64_t step, const TrialStep& copy) {
  if (verdict.first || !copy.apart) return;
  verdict.first = Difference{
      step + 1, fmt::format("{} on rank {}, against its other holder's,", copy.apart->what, copy.apart->rank), 0,
      copy.apart->elements};
}

// Copies of the same weights are equal bit for bit.
void check_copies(LayoutVerdict& verdict, std::int64_t step, std::span<const TrialStep> copies,
                  const ModelSpec& model) {
  for (std::size_t c = 1; c < copies.size() && !verdict.first; ++c) {
    LayoutVerdict bits{.layout = verdict.layout};
    Comparison(bits, By::bits, model).step(step, copies[c], copies[0]);
    if (bits.first) verdict.first = bits.first;
  }
}

// One rank and the layout in fp64.
std::optional<Difference> difference_in_double(RunSpec run, const LayoutSpec& layout, const TrialOptions& options) {
  run.precision = Precision::fp64;
  return compare_layouts(run, {LayoutSpec{}, layout}, {.steps = options.steps, .faults = options.faults})
      .verdicts[0]
      .first;
}

void judge_rounding(LayoutVerdict& verdict, const RunSpec& run, std::span<const TrialStep> steps,
                    const TrialOptions& options) {
  verdict.rounding = check_rounding(run, verdict.layout, steps);
  const auto& worst = verdict.rounding->worst;
  if (!worst || (verdict.first && verdict.first->step <= worst->step)) return;
  const Difference found{worst->step, worst->what, worst->error, worst->elements};
  if (verdict.rounding->certain || verdict.first || difference_in_double(run, verdict.layout, options))
    verdict.first = found;
  else
    verdict.undecided = found;
}

}  // namespace

LayoutReport compare_layouts(const RunSpec& run, const std::vector<LayoutSpec>& layouts, const TrialOptions& options) {
  LOCKSTEP_CHECK(layouts.size() >= 2, "{} layouts are not two", layouts.size());
  const By by = options.exact ? By::bits : run.precision.compute == Precision::fp64 ? By::tolerance : By::nothing;
  LayoutReport report{.precision = run.precision.compute,
                      .steps = options.steps,
                      .tensors = 0,
                      .last_loss = 0,
                      .verdicts = {},
                      .itself = {}};
  std::vector<TrialStep> first, steps;
  for (const LayoutSpec& layout : layouts) {
    const bool is_first = &layout == &layouts[0];
    LayoutVerdict verdict{.layout = layout};
    if (by == By::tolerance) verdict.tolerance = kToleranceInDouble;
    steps.clear();
    trial_steps(run, layout, options.steps, options.faults, [&](std::int64_t step, std::span<const TrialStep> copies) {
      if (is_first) first.push_back(copies[0]);
      const TrialStep& theirs = first[static_cast<std::size_t>(step)];
      for (const TrialStep& copy : copies) {
        check_within(verdict, step, copy);
        Comparison(verdict, by, run.model).step(step, copy, theirs);
      }
      if (by != By::nothing) return;
      check_copies(verdict, step, copies, run.model);
      if (!is_first) steps.push_back(copies[0]);
    });
    // One rank is what it would be compared with.
    if (by == By::nothing && layout != LayoutSpec{}) judge_rounding(verdict, run, is_first ? first : steps, options);
    if (is_first && (by == By::nothing || verdict.first)) report.itself = verdict;
    if (!is_first) report.verdicts.push_back(std::move(verdict));
  }
  report.tensors = first.empty() ? 0 : std::ssize(first[0].weights);
  report.last_loss = first.empty() ? 0 : first.back().loss;
  return report;
}

}  // namespace lockstep
