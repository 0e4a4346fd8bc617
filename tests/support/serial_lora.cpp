#include "support/serial_lora.h"

#include <cmath>
#include <cstring>

#include "support/host_run.h"
#include "tensor/transfer.h"
#include "train/host_values.h"

namespace lockstep::tests {

namespace {

const std::string kBegin = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

// The weight's element that joins an output to an input.
std::size_t place_of(const ModelSpec& spec, std::size_t out, std::size_t in, std::size_t outs, std::size_t ins) {
  return spec.in_out_weights ? in * outs + out : out * ins + in;
}

PlainTensors values_of(const std::vector<LogicalTensor>& names, const std::vector<StateTensor>& state, Stream& stream) {
  PlainTensors all;
  for (const LogicalTensor& t : names) all[t.name].resize(static_cast<std::size_t>(t.elements()));
  for (const StateTensor& piece : state) {
    const std::vector<double> values = to_doubles(piece.live, stream);
    auto value = values.begin();
    for (std::int64_t row = 0; row < piece.range.rows; ++row)
      for (std::int64_t i = 0; i < piece.range.row; ++i)
        all.at(piece.tensor.name)[static_cast<std::size_t>(piece.range.begin + row * piece.range.pitch + i)] = *value++;
  }
  return all;
}

}  // namespace

std::vector<std::string> adapted_projections(const Replica::Options& o) {
  std::vector<std::string> all;
  for (const LogicalTensor& t : logical_tensors(Model(o.spec, 1, 1, DType::f64, {.lora = o.how.lora})))
    if (t.name.ends_with(kA)) all.push_back(t.name.substr(kBegin.size(), t.name.size() - kBegin.size() - kA.size()));
  return all;
}

std::vector<double> plain_merge(const Replica::Options& o, const std::string& projection,
                                const std::vector<double>& weight, const PlainTensors& adapters) {
  const std::vector<double>&a = adapters.at(kBegin + projection + kA), &b = adapters.at(kBegin + projection + kB);
  const auto rank = static_cast<std::size_t>(o.how.lora.rank);
  const std::size_t ins = a.size() / rank, outs = b.size() / rank;
  std::vector<double> merged = weight;
  for (std::size_t out = 0; out < outs; ++out)
    for (std::size_t in = 0; in < ins; ++in) {
      double sum = 0;
      for (std::size_t r = 0; r < rank; ++r) sum += b[out * rank + r] * a[r * ins + in];
      merged[place_of(o.spec, out, in, outs, ins)] += o.how.lora.alpha / static_cast<double>(rank) * sum;
    }
  return merged;
}

LoraLearned learn_with_adapters(const Replica::Options& o, int steps) {
  Replica::Options one = o;
  one.layout = {};
  PlainTensors base, adapters;
  std::vector<LogicalTensor> names;  // of adapters
  {
    HostRun begins(one);
    begins.replica->init_weights();
    names = logical_tensors(begins.replica->model());
    base = values_of(frozen_tensors(begins.replica->model()), begins.replica->frozen(), *begins.stream);
    for (const auto& t : begins.replica->tensors()) adapters[t.tensor.name] = to_doubles(t.master, *begins.stream);
  }
  one.how.lora = {};
  HostRun whole(one);
  const std::vector<LogicalTensor> all = logical_tensors(whole.replica->model());
  const std::vector<std::string> projections = adapted_projections(o);
  const auto rank = static_cast<std::size_t>(o.how.lora.rank);
  const double s = o.how.lora.alpha / static_cast<double>(rank);

  LoraLearned result;
  Learned& learned = result.learned;
  Learned::Tensor last{};
  for (const LogicalTensor& t : names)
    learned.tensors.push_back(last = {t.name, last.begin + last.count, t.elements()});
  const auto flat = [&](const PlainTensors& tensors) {
    std::vector<double> values;
    for (const LogicalTensor& t : names)
      values.insert(values.end(), tensors.at(t.name).begin(), tensors.at(t.name).end());
    return values;
  };
  PlainTensors m, v;
  for (const auto& [name, values] : adapters) m[name] = v[name] = std::vector<double>(values.size());
  const auto merge = [&] {
    result.merged = base;
    for (const std::string& p : projections)
      result.merged.at(p + ".weight") = plain_merge(o, p, base.at(p + ".weight"), adapters);
  };
  for (int step = 0; step < steps; ++step) {
    merge();
    std::vector<ConstTensor> values;
    for (const LogicalTensor& t : all)
      values.emplace_back(result.merged.at(t.name).data(), DType::f64, Device::cpu, Shape{t.elements()});
    whole.replica->load(values);
    const TokenBatch batch = random_batch(o, static_cast<unsigned>(step));
    whole.replica->resume(step, step);
    learned.losses.push_back(whole.replica->compute_gradients(batch.tokens, batch.targets));
    PlainTensors d_whole, gradients;
    for (const auto& t : whole.replica->tensors()) d_whole[t.tensor.name] = to_doubles(t.gradient, *whole.stream);
    double square = 0;
    for (const std::string& p : projections) {
      const std::vector<double>&a = adapters.at(kBegin + p + kA), &b = adapters.at(kBegin + p + kB),
            &d = d_whole.at(p + ".weight");
      std::vector<double>&da = gradients[kBegin + p + kA], &db = gradients[kBegin + p + kB];
      da.assign(a.size(), 0), db.assign(b.size(), 0);
      const std::size_t ins = a.size() / rank, outs = b.size() / rank;
      for (std::size_t out = 0; out < outs; ++out)
        for (std::size_t in = 0; in < ins; ++in)
          for (std::size_t r = 0; r < rank; ++r) {
            const double dw = s * d[place_of(o.spec, out, in, outs, ins)];
            da[r * ins + in] += b[out * rank + r] * dw;
            db[out * rank + r] += dw * a[r * ins + in];
          }
      for (const std::vector<double>* g : {&da, &db})
        for (const double x : *g) square += x * x;
    }
    learned.gradients.push_back({flat(gradients)});
    const OptimizerSpec& how = o.optimizer;
    const double norm = std::sqrt(square), scale = how.clip > 0 ? std::min(1.0, how.clip / (norm + 1e-6)) : 1;
    learned.norms.push_back(norm);
    const double first = 1 - std::pow(how.beta1, step + 1), next = std::sqrt(1 - std::pow(how.beta2, step + 1));
    for (auto& [name, weights] : adapters)
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const double g = gradients.at(name)[i] * scale;
        double &mean = m.at(name)[i], &spread = v.at(name)[i];
        weights[i] -= how.learning_rate * how.weight_decay * weights[i];
        mean = how.beta1 * mean + (1 - how.beta1) * g;
        spread = how.beta2 * spread + (1 - how.beta2) * g * g;
        weights[i] -= how.learning_rate / first * mean / (std::sqrt(spread) / next + how.eps);
      }
  }
  merge();
  learned.copies = {flat(adapters)};
  return result;
}

}  // namespace lockstep::tests
