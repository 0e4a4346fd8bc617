#include "train/trial_steps.h"

#include <cmath>
#include <cstring>
#include <mutex>

#include "comm/threads/run_ranks.h"
#include "optim/learning_rate.h"
#include "spec/layout/updates.h"
#include "tensor/transfer.h"
#include "train/shared_gpu.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

// One of a rank's two kinds of tensors, and what its values are multiplied by: gradients may be of a scaled loss.
struct Kind {
  Tensor Replica::Named::*which;
  double factor = 1;
  std::vector<double> of(const Replica::Named& named, Stream& stream) const {
    std::vector<double> values = to_doubles(named.*which, stream);
    for (double& value : values) value *= factor;
    return values;
  }
};

// What a rank answers for of each tensor, in its place in the whole.
void put(TrialTensors& whole, const std::vector<Replica::Named>& tensors, const Kind& kind, Stream& stream) {
  for (const Replica::Named& named : tensors)
    if (named.counted && !named.runs.empty()) named.put(kind.of(named, stream), whole.at(named.tensor.name));
}

// The first tensor of which this rank holds other values than the rank that answers for them.
std::optional<TrialStep::Apart> first_apart(const TrialTensors& whole, const std::vector<Replica::Named>& tensors,
                                            const Kind& kind, Stream& stream) {
  for (const Replica::Named& named : tensors) {
    if (named.counted || named.runs.empty()) continue;
    const std::vector<double> mine = kind.of(named, stream);
    std::vector<double> theirs = mine;
    named.take(theirs, whole.at(named.tensor.name));
    std::int64_t different = 0;
    for (std::size_t e = 0; e < mine.size(); ++e)
      different += std::memcmp(&mine[e], &theirs[e], sizeof(double)) != 0 ? 1 : 0;
    if (different > 0) return TrialStep::Apart{named.tensor.name, 0, different};
  }
  return std::nullopt;
}

}  // namespace

void trial_steps(const RunSpec& run, const LayoutSpec& layout, std::int64_t steps, const TrialFaults& faults,
                 const TrialLook& look) {
  RunSpec spec = run;
  spec.layout = layout;
  validate(spec, [&](std::string_view, std::string_view) { return "--layout " + to_text(layout); });
  spec.train.save_last = false;
  spec.train.save_every = 0;
  const std::int64_t cut = layout.shards();
  std::vector<TrialStep> copies(static_cast<std::size_t>(state_copies(layout)));
  for (std::int64_t c = 0; c < std::ssize(copies); ++c) {
    const std::int64_t replica = c * cut;
    copies[static_cast<std::size_t>(c)].rank =
        static_cast<int>((replica / layout.cp * layout.pp * layout.cp + replica % layout.cp) * layout.tp);
  }
  std::mutex apart_mutex;
  run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> ranks) {
    if (faults.wrap) ranks = faults.wrap(std::move(ranks));
    const int rank = ranks->rank();
    const bool on_gpu = device_of(spec) == Device::cuda;
    TrainingRun::Where where{.ranks = ranks->size() > 1 ? ranks.get() : nullptr};
    if (on_gpu && where.ranks)
      where.connect = [](Communicator& hosts, Memory&, Stream& stream) { return on_shared_gpu(hosts, stream); };
    TrainingRun training(spec, device_of(spec), "", where);
    training.init_weights();
    Replica& replica = training.replica();
    const std::vector<Replica::Named> tensors = replica.tensors();
    TrialStep& copy = copies[static_cast<std::size_t>(state_copy(layout, rank))];
    if (rank == copy.rank)
      for (const LogicalTensor& tensor : logical_tensors(replica.model()))
        for (TrialTensors* all : {&copy.gradients, &copy.weights})
          all->try_emplace(tensor.name, static_cast<std::size_t>(tensor.elements()));
    ranks->barrier()->wait();
    const bool puts = rank_updates(layout, rank);
    for (std::int64_t step = 0; step < steps; ++step) {
      const double loss = training.compute_gradients(
          step * spec.train.global_batch,
          learning_rate(spec.schedule, spec.optimizer.learning_rate, step, spec.train.steps));
      if (faults.spoil) faults.spoil(layout, replica, rank, step, false);
      const Kind gradients{&Replica::Named::gradient, std::ldexp(1.0, -replica.loss_scale().exponent)};
      const Kind weights{&Replica::Named::master};
      if (puts) put(copy.gradients, tensors, gradients, training.stream());
      const double norm = replica.apply_gradients().norm;
      if (faults.spoil) faults.spoil(layout, replica, rank, step, true);
      if (puts) put(copy.weights, tensors, weights, training.stream());
      if (rank == copy.rank) {
        copy.loss = loss;
        copy.norm = norm;
      }
      ranks->barrier()->wait();
      for (const auto& [whole, kind, what] :
           {std::tuple{&copy.gradients, gradients, "gradient of"}, std::tuple{&copy.weights, weights, "weight"}})
        if (const auto apart = first_apart(*whole, tensors, kind, training.stream())) {
          const std::lock_guard lock(apart_mutex);
          if (!copy.apart) copy.apart = {fmt::format("the {} {}", what, apart->what), rank, apart->elements};
        }
      ranks->barrier()->wait();
      if (rank == 0) look(step, copies);
      ranks->barrier()->wait();
    }
  });
}

}  // namespace lockstep
