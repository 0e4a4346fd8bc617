#include "support/injected_faults.h"

namespace lockstep::tests {

std::string name_of(FaultIn fault) {
  switch (fault) {
    case FaultIn::gradient:
      return "a gradient tensor";
    case FaultIn::gradient_element:
      return "one element of a gradient";
    case FaultIn::weight:
      return "a weight tensor";
    case FaultIn::weight_element:
      return "one element of a weight";
    case FaultIn::contribution:
      return "one rank's messages";
    case FaultIn::contribution_element:
      return "one element of one rank's messages";
  }
  return "?";
}

namespace {

using Changed = std::atomic<bool>;

template <class T>
void scale_as(const ConstTensor& x, std::int64_t begin, std::int64_t count, double by, Changed& changed) {
  T* const values = const_cast<T*>(x.data<T>());
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const T old = values[i];
    values[i] = static_cast<T>(old * by);
    if (values[i] != old) changed = true;
  }
}

void scale(const ConstTensor& x, std::int64_t begin, std::int64_t count, double by, Changed& changed) {
  if (x.dtype() == DType::f32) scale_as<float>(x, begin, count, by, changed);
  if (x.dtype() == DType::f64) scale_as<double>(x, begin, count, by, changed);
}

// What of a tensor is here; of an element, if it is.
void spoil(const Replica::Named& named, const Tensor& values, bool element, double by, Changed& changed) {
  if (!element) return scale(values, 0, values.elements(), by, changed);
  const std::int64_t wanted = named.tensor.elements() / 2;
  for (const Run& run : named.runs)
    for (std::int64_t row = 0; row < run.rows(); ++row)
      if (const std::int64_t e = wanted - run.there.begin - row * run.there.pitch; e >= 0 && e < run.row())
        scale(values, run.here.begin + row * run.here.pitch + e, 1, by, changed);
}

// A rank whose messages are wrong. Numbers of the host (losses, sizes) are few, and pass.
class FaultyRank final : public Communicator {
 public:
  FaultyRank(std::unique_ptr<Communicator> inner, bool faulty, bool element, double by, Changed& changed)
      : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
        inner_(std::move(inner)),
        faulty_(faulty),
        element_(element),
        by_(by),
        changed_(changed) {}

  Started start(const Message& message) override {
    if (faulty_ && size() > 1 && message.op != CommOp::recv && message.in.elements() >= 16)
      scale(message.in, 0, element_ ? 1 : message.in.elements(), by_, changed_);
    return inner_->start(message);
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    auto part = inner_->split(place, name);
    return part ? std::make_unique<FaultyRank>(std::move(part), faulty_, element_, by_, changed_) : nullptr;
  }
  void check() override { inner_->check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_->memory(ledger); }

 private:
  std::unique_ptr<Communicator> inner_;
  bool faulty_, element_;
  double by_;
  Changed& changed_;
};

}  // namespace

TrialFaults fault(FaultIn where, double size, const std::string& tensor, std::atomic<bool>& changed) {
  const double by = 1 + size;
  TrialFaults faults;
  if (where == FaultIn::contribution || where == FaultIn::contribution_element) {
    faults.wrap = [=, &changed](std::unique_ptr<Communicator> ranks) -> std::unique_ptr<Communicator> {
      const bool faulty = ranks->rank() == 1;
      return std::make_unique<FaultyRank>(std::move(ranks), faulty, where == FaultIn::contribution_element, by,
                                          changed);
    };
    return faults;
  }
  const bool weights = where == FaultIn::weight || where == FaultIn::weight_element;
  const bool element = where == FaultIn::gradient_element || where == FaultIn::weight_element;
  faults.spoil = [=, &changed](const LayoutSpec& layout, Replica& replica, int, std::int64_t step, bool updated) {
    if (layout.ranks() == 1 || step != 1 || updated != weights) return;
    for (const Replica::Named& named : replica.tensors())
      if (named.tensor.name == tensor) spoil(named, weights ? named.master : named.gradient, element, by, changed);
  };
  return faults;
}

RunSpec trial_run(const ModelSpec& model, std::int64_t seq, std::uint64_t seed, Precision precision) {
  RunSpec run;
  run.model = model;
  run.data.synthetic =
      SyntheticSpec{.vocabulary = std::min<std::int64_t>(model.vocabulary, 64), .order = 1, .branching = 3};
  run.data.seq = seq;
  run.train.steps = 100;
  run.train.global_batch = 8;
  run.train.seed = seed;
  run.train.save_every = 0;
  run.precision.compute = precision;
  run.run.threads = 1;
  return run;
}

}  // namespace lockstep::tests
