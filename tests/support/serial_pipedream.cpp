#include "support/serial_pipedream.h"

#include <cmath>

#include "checkpoint/hf_tensors.h"
#include "kernels/cross_entropy.h"

namespace lockstep::tests {

namespace {

// The gradient of some samples alone, at any weights.
class PlainGradient {
 public:
  PlainGradient(const Replica::Options& o, std::int64_t samples) : run_(alone(o, samples)) {
    run_.replica->init_weights();
  }
  std::vector<LogicalTensor> names() const { return logical_tensors(run_.replica->model()); }
  PlainValues values(Tensor Replica::Named::*which) const {
    PlainValues all;
    for (const Replica::Named& t : run_.replica->tensors()) {
      all.emplace_back(static_cast<std::size_t>(t.tensor.elements()));
      t.put(to_doubles(t.*which, *run_.stream), all.back());
    }
    return all;
  }
  // The mean loss; values(gradient) then has its gradient.
  double at(const PlainValues& weights, const TokenBatch& batch) {
    std::vector<ConstTensor> tensors;
    for (const auto& one : weights) tensors.emplace_back(one.data(), DType::f64, Device::cpu, Shape{std::ssize(one)});
    run_.replica->load(tensors);
    return run_.replica->compute_gradients(batch.tokens, batch.targets);
  }

 private:
  static Replica::Options alone(Replica::Options o, std::int64_t samples) {
    o.layout = {};
    o.B = samples;
    return o;
  }
  HostRun run_;
};

// AdamW as its paper has it, or SGD with momentum, of one stage's tensors, clipped by their own norm.
struct PlainStage {
  std::vector<std::size_t> tensors;
  std::vector<PlainValues> versions;  // of the window; the last is the newest
  PlainValues m, v;
  std::int64_t updates = 0;

  void update(const PlainValues& gradient, const OptimizerSpec& o, double rate,
              const std::vector<LogicalTensor>& names) {
    double square = 0;
    for (const std::size_t i : tensors)
      for (const double x : gradient[i]) square += x * x;
    const double norm = std::sqrt(square), scale = o.clip > 0 ? std::min(1.0, o.clip / (norm + 1e-6)) : 1;
    versions.push_back(versions.back());
    PlainValues& w = versions.back();
    const auto t = static_cast<double>(++updates);
    for (const std::size_t i : tensors)
      for (std::size_t e = 0; e < w[i].size(); ++e) {
        const double x = gradient[i][e] * scale, decay = names[i].shape.size() > 1 ? o.weight_decay : 0;
        if (o.kind == OptimizerKind::sgd) {
          m[i][e] = o.momentum * m[i][e] + x + decay * w[i][e];
          w[i][e] -= rate * m[i][e];
          continue;
        }
        m[i][e] = o.beta1 * m[i][e] + (1 - o.beta1) * x;
        v[i][e] = o.beta2 * v[i][e] + (1 - o.beta2) * x * x;
        w[i][e] -= rate * decay * w[i][e];
        const double mean = m[i][e] / (1 - std::pow(o.beta1, t)), spread = v[i][e] / (1 - std::pow(o.beta2, t));
        w[i][e] -= rate * mean / (std::sqrt(spread) + o.eps);
      }
  }
  void drain() { versions = {versions.back()}; }
};

// Micro-batch j of every dp rank.
TokenBatch micro_batch_of(const TokenBatch& all, const Replica::Options& o, std::int64_t j) {
  TokenBatch part;
  for (std::int64_t d = 0; d < o.layout.dp; ++d) {
    const Share share = share_of(o.B, o.layout, d);
    const std::int64_t each = share.count / o.layout.micro, first = share.first + j * each;
    const auto take = [&](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
      to.insert(to.end(), from.begin() + first * o.T, from.begin() + (first + each) * o.T);
    };
    take(part.tokens, all.tokens);
    take(part.targets, all.targets);
  }
  return part;
}

}  // namespace

PipeDreamTrajectory simulate_pipedream(const PipeDreamRun& run, const std::map<std::string, int>& stage_of) {
  const Replica::Options& o = run.options;
  const std::int64_t micro = o.layout.micro, stages = o.layout.pp;
  const bool once = o.layout.schedule == ScheduleKind::pipedream_2bw;
  PlainGradient gradient(o, once ? o.B : o.B / micro);
  const std::vector<LogicalTensor> names = gradient.names();
  const PlainValues start = run.from.empty() ? gradient.values(&Replica::Named::master) : run.from[0];
  PlainValues zero = start;
  for (auto& tensor : zero) std::ranges::fill(tensor, 0.0);
  std::vector<PlainStage> all(static_cast<std::size_t>(stages));
  for (PlainStage& stage : all) stage.versions = {start}, stage.m = stage.v = zero;
  for (std::size_t i = 0; i < names.size(); ++i)
    all[static_cast<std::size_t>(stage_of.at(names[i].name))].tensors.push_back(i);

  PipeDreamTrajectory found;
  std::int64_t window = 0;  // updates since the pipeline was empty
  for (std::int64_t step = 0; step < run.steps; ++step) {
    const TokenBatch batch = run.batch(step);
    double total = 0, targets = 0;
    for (std::int64_t j = 0; j < (once ? 1 : micro); ++j, ++window) {
      PlainValues weights = start;
      for (std::int64_t s = 0; s < stages; ++s) {
        const PlainStage& stage = all[static_cast<std::size_t>(s)];
        const std::int64_t lag = once ? 1 : stages - 1 - s;
        const PlainValues& used = stage.versions[static_cast<std::size_t>(std::max<std::int64_t>(0, window - lag))];
        for (const std::size_t i : stage.tensors) weights[i] = used[i];
      }
      const TokenBatch part = once ? batch : micro_batch_of(batch, o, j);
      const auto counted =
          static_cast<double>(std::ssize(part.targets) - std::ranges::count(part.targets, kIgnoredTarget));
      total += gradient.at(weights, part) * counted;
      targets += counted;
      const PlainValues g = gradient.values(&Replica::Named::gradient);
      for (PlainStage& stage : all) stage.update(g, o.optimizer, run.rate(step), names);
    }
    found.losses.push_back(total / targets);
    if (!run.drained.contains(step + 1)) continue;
    for (PlainStage& stage : all) stage.drain();
    window = 0;
  }
  found.weights = start;
  for (const PlainStage& stage : all)
    for (const std::size_t i : stage.tensors) found.weights[i] = stage.versions.back()[i];
  return found;
}

}  // namespace lockstep::tests
