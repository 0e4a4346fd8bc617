#include "train/rounding_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "checkpoint/state_runs.h"
#include "optim/learning_rate.h"
#include "tensor/transfer.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A vector's 2-norm and largest element.
struct Sizes {
  double all = 0, most = 0;

  static Sizes of(std::span<const double> values) {
    double sum = 0, most = 0;
    for (const double v : values) {
      sum += v * v;
      most = std::isnan(v) ? kNever : std::max(most, std::abs(v));
    }
    return {std::isnan(sum) ? kNever : std::sqrt(sum), most};
  }
  static Sizes between(std::span<const double> a, std::span<const double> b) {
    std::vector<double> apart(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) apart[i] = a[i] - b[i];
    return of(apart);
  }
};

// One gradient tensor, or the loss, in one step: how large it is, how far one rank is from it and how far the layout.
struct Measured {
  std::string what;
  Sizes truth, one, layout;
  std::int64_t different = 1;  // elements that are not one rank's
};

struct MeasuredStep {
  std::vector<Measured> gradients;
  Measured loss;
  double scale = 0, noise = 0;  // of all gradients together: the truth's norm, and one rank's error
  std::optional<RoundingVerdict::Worst> update;
};

std::int64_t bits_apart(std::span<const double> a, std::span<const double> b) {
  std::int64_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += std::memcmp(&a[i], &b[i], sizeof(double)) != 0 ? 1 : 0;
  return different;
}

// Elements that are more than that apart.
std::int64_t beyond(std::span<const double> a, std::span<const double> b, double most) {
  std::int64_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    different += std::memcmp(&a[i], &b[i], sizeof(double)) != 0 && !(std::abs(a[i] - b[i]) <= most) ? 1 : 0;
  return different;
}

// The norm is summed in fp64, exactly over blocks of 256 elements; tp splits tensors elsewhere, into other blocks.
constexpr double kNormRounding = 256 * 0x1p-53;

// One rank that takes a batch at given weights.
class OneRank {
 public:
  OneRank(RunSpec run, const LayoutSpec& layout) : run_(alone(std::move(run), layout)) { run_.init_weights(); }

  Replica& replica() { return run_.replica(); }
  double compute(std::int64_t step) {
    const RunSpec& spec = run_.spec();
    const double rate = learning_rate(spec.schedule, spec.optimizer.learning_rate, step, spec.train.steps);
    return run_.compute_gradients(step * spec.train.global_batch, rate);
  }
  // What one rounding of the weights and of the moments may move a weight by.
  double rounding_of_update(double weight, double update) const {
    const auto rounding = [](StateType type) { return type == StateType::bf16 ? 0x1p-9 : 0x1p-24; };
    const PrecisionSpec& precision = run_.spec().precision;
    return rounding(precision.master) * weight + rounding(precision.moments) * update;
  }
  // Gradients as if the loss were not scaled.
  TrialTensors read_gradients() { return read(&Replica::Named::gradient, 1 / loss_scale()); }
  TrialTensors read_masters() { return read(&Replica::Named::master, 1); }
  TrialTensors read(Tensor Replica::Named::*which, double factor) {
    TrialTensors all;
    for (const Replica::Named& named : replica().tensors()) {
      std::vector<double>& whole = all[named.tensor.name];
      whole.resize(static_cast<std::size_t>(named.tensor.elements()));
      named.put(to_doubles(named.*which, run_.stream()), whole);
      for (double& value : whole) value *= factor;
    }
    return all;
  }
  void set_weights(const TrialTensors& weights, std::int64_t step) {
    std::vector<ConstTensor> values;
    for (const LogicalTensor& tensor : logical_tensors(replica().model()))
      values.push_back(host(weights.at(tensor.name)));
    replica().load(values);
    replica().resume(step, step);
  }
  void set_gradients(const TrialTensors& gradients) {
    for (const Replica::Named& named : replica().tensors()) {
      std::vector<double> scaled = gradients.at(named.tensor.name);
      for (double& value : scaled) value *= loss_scale();
      upload_runs(named.gradient, named.runs, host(scaled), run_.stream());
    }
  }

 private:
  double loss_scale() { return std::ldexp(1.0, replica().loss_scale().exponent); }
  static TrainingRun alone(RunSpec run, const LayoutSpec& layout) {
    run.layout = {.micro = std::gcd(run.train.global_batch, layout.micro)};  // the memory of a micro-batch is enough
    run.train.save_last = false;
    run.train.save_every = 0;
    return TrainingRun(run, device_of(run), "");
  }
  static ConstTensor host(const std::vector<double>& values) {
    return ConstTensor(values.data(), DType::f64, Device::cpu, {std::ssize(values)});
  }

  TrainingRun run_;
};

MeasuredStep measure(const TrialStep& step, std::int64_t number, OneRank& one, OneRank& truth) {
  MeasuredStep measured;
  const double true_loss = truth.compute(number), own_loss = one.compute(number);
  const TrialTensors exact = truth.read_gradients(), own = one.read_gradients();
  const auto number_of = [](double value) { return Sizes{std::abs(value), std::abs(value)}; };
  measured.loss = {"the loss", number_of(true_loss), number_of(own_loss - true_loss), number_of(step.loss - true_loss)};
  double scale = 0, noise = 0;
  for (const auto& [name, g] : exact) {
    const std::vector<double>&layout = step.gradients.at(name), &mine = own.at(name);
    measured.gradients.push_back({"the gradient of " + name, Sizes::of(g), Sizes::between(mine, g),
                                  Sizes::between(layout, g), bits_apart(layout, mine)});
    scale += std::pow(measured.gradients.back().truth.all, 2);
    noise += std::pow(measured.gradients.back().one.all, 2);
  }
  measured.scale = std::sqrt(scale);
  measured.noise = std::sqrt(noise);

  const TrialTensors before = one.read_masters();
  one.set_gradients(step.gradients);
  const double norm = one.replica().apply_gradients().norm;
  const auto wrong = [&](std::string what, double error, std::int64_t elements) {
    if (!measured.update) measured.update = {number + 1, std::move(what), error, elements};
  };
  const double norm_error = std::abs(step.norm - norm) / norm;
  if (!(norm_error <= kNormRounding) && !(std::isnan(step.norm) && std::isnan(norm)))
    wrong("the norm of its own gradient", norm_error, 1);
  const bool same_norm = bits_apart({&norm, 1}, {&step.norm, 1}) == 0;
  for (const auto& [name, weights] : one.read_masters()) {
    const std::vector<double>& layout = step.weights.at(name);
    // A norm of other bits is a clipping factor of other bits.
    const double most =
        same_norm ? 0
                  : 4 * one.rounding_of_update(Sizes::of(weights).most, Sizes::between(weights, before.at(name)).most);
    if (const std::int64_t different = beyond(layout, weights, most); different > 0)
      wrong("the update of " + name, Sizes::between(layout, weights).all / Sizes::of(weights).all, different);
  }
  return measured;
}

// Half a unit in the last place of what gradients are kept in.
double rounding_of(const PrecisionSpec& precision) {
  return precision.gradients == StateType::bf16 ? 0x1p-9 : precision.compute == Precision::fp64 ? 0x1p-53 : 0x1p-24;
}

// What rounding explains, by one rank's over all steps.
struct Allowed {
  std::vector<Sizes> noise;  // of each gradient tensor, over the norm of all of them
  double loss = 0, relative = 0;

  explicit Allowed(std::span<const MeasuredStep> steps) : noise(steps[0].gradients.size()) {
    for (const MeasuredStep& step : steps) {
      for (std::size_t t = 0; t < noise.size(); ++t) {
        noise[t].all = std::max(noise[t].all, step.gradients[t].one.all / step.scale);
        noise[t].most = std::max(noise[t].most, step.gradients[t].one.most / step.scale);
      }
      loss = std::max(loss, step.loss.one.all);
      relative = std::max(relative, step.noise / step.scale);
    }
  }
};

double ratio(double error, double allowed) {
  return error == 0 ? 0 : std::isfinite(error) && allowed > 0 ? error / allowed : kNever;
}

}  // namespace

RoundingVerdict check_rounding(const RunSpec& run, const LayoutSpec& layout, std::span<const TrialStep> steps) {
  RunSpec in_double = run;
  in_double.precision = Precision::fp64;
  OneRank one(run, layout), truth(in_double, layout);
  std::vector<MeasuredStep> measured;
  for (std::int64_t s = 0; s < std::ssize(steps); ++s) {
    if (s == 0)
      truth.set_weights(one.read_masters(), 0);
    else
      truth.set_weights(steps[static_cast<std::size_t>(s - 1)].weights, s);
    measured.push_back(measure(steps[static_cast<std::size_t>(s)], s, one, truth));
    if (measured.back().update) break;  // one rank is elsewhere from here on
  }

  RoundingVerdict verdict;
  const Allowed allowed(measured);
  const double u = rounding_of(run.precision);
  const auto judge = [&](std::int64_t s, const Measured& m, double in_all, double anywhere) {
    const double share = std::max(ratio(m.layout.all, in_all), ratio(m.layout.most, anywhere));
    verdict.share = std::max(verdict.share, share);
    const bool first_step = !verdict.worst || verdict.worst->step == s + 1;
    if (share <= 1 || !first_step || (verdict.worst && share < verdict.share)) return;
    const double size = std::max(m.truth.all, 1e-6 * measured[static_cast<std::size_t>(s)].scale);
    verdict.worst = {s + 1, m.what, m.layout.all / size, m.different};
    verdict.certain = share > kUndecided;
  };
  std::vector<std::pair<double, std::string>> sees;
  for (std::int64_t s = 0; s < std::ssize(measured); ++s) {
    const MeasuredStep& step = measured[static_cast<std::size_t>(s)];
    const double loss = kTimesInAll * std::max(allowed.loss, allowed.relative * step.loss.truth.all);
    judge(s, step.loss, loss, loss);
    for (std::size_t t = 0; t < step.gradients.size(); ++t) {
      const Measured& m = step.gradients[t];
      const double in_all = kTimesInAll * std::max(allowed.noise[t].all * step.scale, u * m.truth.all);
      judge(s, m, in_all, kTimesAnywhere * std::max(allowed.noise[t].most * step.scale, u * m.truth.most));
      if (s == 0) sees.emplace_back(in_all / std::max(m.truth.all, 1e-6 * step.scale), m.what);
    }
    if (step.update && !verdict.worst) {
      verdict.worst = step.update;
      verdict.certain = true;
      verdict.share = kNever;
    }
  }
  std::ranges::sort(sees);
  verdict.sees = sees[sees.size() / 2].first;
  std::tie(verdict.sees_at_worst, verdict.bluntest) = sees.back();
  return verdict;
}

}  // namespace lockstep
