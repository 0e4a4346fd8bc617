#include "train/layout_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "comm/threads/run_ranks.h"
#include "optim/learning_rate.h"
#include "tensor/transfer.h"
#include "train/key_bias.h"
#include "train/shared_gpu.h"
#include "train/training_run.h"

namespace lockstep {

bool LayoutReport::ok() const {
  return std::ranges::none_of(verdicts, [](const LayoutVerdict& v) { return v.first.has_value(); });
}

namespace {

// Whole tensors by name.
using Values = std::map<std::string, std::vector<double>>;

// What of a step is looked at, of all tensors.
struct StepValues {
  double loss = 0, norm = 0;
  Values gradients, weights;
};

using Look = std::function<void(std::int64_t step, const StepValues&)>;

// What a rank answers for of each tensor, in its place in the whole.
void put(Values& whole, const std::vector<Replica::Named>& tensors, Tensor Replica::Named::*which, Stream& stream) {
  for (const Replica::Named& named : tensors)
    if (named.counted && !named.runs.empty()) named.put(to_doubles(named.*which, stream), whole.at(named.tensor.name));
}

// The first tensor of which this rank holds other values than the rank that answers for them; null: there is none.
const Replica::Named* first_apart(const Values& whole, const std::vector<Replica::Named>& tensors,
                                  Tensor Replica::Named::*which, Stream& stream) {
  for (const Replica::Named& named : tensors) {
    if (named.counted || named.runs.empty()) continue;
    const std::vector<double> mine = to_doubles(named.*which, stream);
    std::vector<double> theirs = mine;
    named.take(theirs, whole.at(named.tensor.name));
    if (std::memcmp(mine.data(), theirs.data(), mine.size() * sizeof(double)) != 0) return &named;
  }
  return nullptr;
}

// Every rank trains. Ranks that cut a copy of gradients and masters between them put it together, and the first of them
// looks at it; of central data parallel, rank 0 alone. What several of them hold must be the same on all.
void train_under(const RunSpec& run, const LayoutSpec& layout, const TrialOptions& options,
                 const std::function<Look(int rank)>& look_of) {
  RunSpec spec = run;
  spec.layout = layout;
  validate(spec, [&](std::string_view, std::string_view) { return "--layout " + to_text(layout); });
  spec.train.save_last = false;
  spec.train.save_every = 0;
  const int cut = static_cast<int>(layout.shards());
  std::vector<StepValues> copies(static_cast<std::size_t>(layout.replicas() / cut));
  run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> ranks) {
    const bool on_gpu = device_of(spec) == Device::cuda;
    TrainingRun::Where where{.ranks = ranks->size() > 1 ? ranks.get() : nullptr};
    if (on_gpu && where.ranks)
      where.connect = [](Communicator& hosts, Memory&, Stream& stream) { return on_shared_gpu(hosts, stream); };
    TrainingRun training(spec, device_of(spec), "", where);
    training.init_weights();
    Replica& replica = training.replica();
    const std::vector<Replica::Named> tensors = replica.tensors();
    const auto replica_rank = static_cast<int>(layout.replica(ranks->rank()));
    const bool looks = replica_rank % cut == 0 && layout.tp_rank(ranks->rank()) == 0 &&
                       layout.stage(ranks->rank()) == 0 && (layout.dp_kind == DpKind::ddp || ranks->rank() == 0);
    const Look look = look_of(ranks->rank());
    StepValues& values = copies[static_cast<std::size_t>(replica_rank / cut)];
    if (looks)
      for (const LogicalTensor& tensor : logical_tensors(replica.model()))
        for (Values* all : {&values.gradients, &values.weights})
          all->try_emplace(tensor.name, static_cast<std::size_t>(tensor.elements()));
    ranks->barrier()->wait();
    const bool puts = layout.dp_kind == DpKind::ddp || ranks->rank() == 0;
    for (std::int64_t step = 0; step < options.steps; ++step) {
      const double loss = training.compute_gradients(
          step * spec.train.global_batch,
          learning_rate(spec.schedule, spec.optimizer.learning_rate, step, spec.train.steps));
      if (puts) put(values.gradients, tensors, &Replica::Named::gradient, training.stream());
      const double norm = replica.apply_gradients().norm;
      if (puts) put(values.weights, tensors, &Replica::Named::master, training.stream());
      ranks->barrier()->wait();
      for (const auto& [whole, which, what] : {std::tuple{&values.gradients, &Replica::Named::gradient, "gradient"},
                                               std::tuple{&values.weights, &Replica::Named::master, "weight"}})
        if (const Replica::Named* apart = first_apart(*whole, tensors, which, training.stream()))
          throw ProgramError(fmt::format("rank {} has another {} of {} than the rank that answers for it",
                                         ranks->rank(), what, apart->tensor.name));
      ranks->barrier()->wait();
      if (looks) {
        values.loss = loss;
        values.norm = norm;
        for (auto& [name, weights] : values.weights)
          if (const auto noise = key_bias_of(spec.model, name); noise && !options.exact)
            std::fill(weights.begin() + noise->first, weights.begin() + noise->second, 0.0);
        look(step, values);
      }
      ranks->barrier()->wait();
    }
  });
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

// How close is equal (docs/numerics.md). In 16 bits another order of sums can move a rounding of an activation.
double tolerance_of(Precision precision) {
  return precision == Precision::fp64 ? 1e-11 : precision == Precision::fp32 ? 1e-5 : 5e-3;
}

// Adam divides a gradient by its own size: where one is near zero, and the weight began there (a bias), rounding moves
// the weight by more than it moved the gradient.
constexpr double kWeightsBy = 10;

// One rank's values against the first layout's.
class Comparison {
 public:
  Comparison(LayoutVerdict& verdict, bool exact) : verdict_(verdict), exact_(exact) {}

  void number(std::int64_t step, const char* what, double mine, double theirs, double& largest) {
    const double error = std::abs(mine - theirs) / std::max(std::abs(theirs), 1e-300);
    judge(step, what, error, mine != theirs, 1, verdict_.tolerance, largest);
  }

  void tensors(std::int64_t step, const char* what, const Values& mine, const Values& theirs, double tolerance,
               double& largest) {
    double squares = 0;
    for (const auto& [name, values] : theirs) squares += std::pow(norm_of(values), 2);
    const double floor = std::max(1e-6 * std::sqrt(squares), 1e-300);
    for (const auto& [name, values] : mine) {
      const std::vector<double>& others = theirs.at(name);
      double sum = 0;
      std::int64_t different = 0;
      for (std::size_t e = 0; e < values.size(); ++e) {
        sum += (values[e] - others[e]) * (values[e] - others[e]);
        different += std::memcmp(&values[e], &others[e], sizeof(double)) != 0;
      }
      judge(step, fmt::format("{} {}", what, name), std::sqrt(sum) / std::max(norm_of(others), floor), different > 0,
            different, tolerance, largest);
    }
  }

 private:
  void judge(std::int64_t step, const std::string& what, double error, bool bits, std::int64_t elements,
             double tolerance, double& largest) {
    if (!(error <= largest)) largest = error;
    if (verdict_.first || (exact_ ? !bits : error <= tolerance)) return;
    verdict_.first = Difference{step + 1, what, error, elements};
  }

  LayoutVerdict& verdict_;
  bool exact_;
};

// Of several ranks' verdicts on one layout: the largest errors, and the earliest difference.
void join(LayoutVerdict& all, const LayoutVerdict& one, int rank) {
  for (double LayoutVerdict::*error :
       {&LayoutVerdict::loss, &LayoutVerdict::gradient, &LayoutVerdict::norm, &LayoutVerdict::weight})
    if (!(one.*error <= all.*error)) all.*error = one.*error;
  if (!one.first || (all.first && all.first->step <= one.first->step)) return;
  all.first = one.first;
  if (rank > 0) all.first->what += fmt::format(" on rank {}", rank);
}

}  // namespace

LayoutReport compare_layouts(const RunSpec& run, const std::vector<LayoutSpec>& layouts, const TrialOptions& options) {
  LOCKSTEP_CHECK(layouts.size() >= 2, "{} layouts are not two", layouts.size());
  std::vector<StepValues> first;
  LayoutReport report{
      .precision = run.precision.compute, .steps = options.steps, .tensors = 0, .last_loss = 0, .verdicts = {}};
  train_under(run, layouts[0], options, [&](int rank) -> Look {
    return [&, rank](std::int64_t, const StepValues& values) {
      if (rank == 0) first.push_back(values);
    };
  });
  report.tensors = first.empty() ? 0 : std::ssize(first[0].weights);
  report.last_loss = first.empty() ? 0 : first.back().loss;
  for (auto layout = layouts.begin() + 1; layout != layouts.end(); ++layout) {
    const double tolerance = tolerance_of(run.precision.compute);
    std::vector<LayoutVerdict> verdicts(static_cast<std::size_t>(layout->ranks()),
                                        {*layout, 0, 0, 0, 0, tolerance, {}});
    train_under(run, *layout, options, [&](int rank) -> Look {
      LayoutVerdict& verdict = verdicts[static_cast<std::size_t>(rank)];
      return [&](std::int64_t step, const StepValues& mine) {
        const StepValues& theirs = first[static_cast<std::size_t>(step)];
        Comparison compare(verdict, options.exact);
        compare.number(step, "the loss", mine.loss, theirs.loss, verdict.loss);
        compare.tensors(step, "the gradient of", mine.gradients, theirs.gradients, tolerance, verdict.gradient);
        compare.number(step, "the gradient's norm", mine.norm, theirs.norm, verdict.norm);
        compare.tensors(step, "the weight", mine.weights, theirs.weights, kWeightsBy * tolerance, verdict.weight);
      };
    });
    LayoutVerdict all{*layout, 0, 0, 0, 0, tolerance, {}};
    for (std::size_t r = 0; r < verdicts.size(); ++r) join(all, verdicts[r], static_cast<int>(r));
    report.verdicts.push_back(std::move(all));
  }
  return report;
}

}  // namespace lockstep
