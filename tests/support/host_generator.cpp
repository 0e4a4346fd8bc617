#include "support/host_generator.h"

#include <cmath>

#include "comm/threads/run_ranks.h"
#include "kernels/elementwise.h"
#include "tensor/transfer.h"

namespace lockstep::tests {

HostGenerator::HostGenerator(const Generator::Options& options, int threads)
    : memory(make_memory(Device::cpu, ledger)),
      stream(std::make_unique<cpu::Stream>(*memory, threads)),
      generator(std::make_unique<Generator>(options, *memory, *stream)) {}

void HostGenerator::copy(const TensorValues& values) {
  for (const StateTensor& here : generator->weights()) {
    const std::vector<double>& whole = values.at(here.tensor.name);
    const std::int64_t row = here.range.row;
    for (std::int64_t i = 0; i < here.range.rows; ++i)
      lockstep::cast(
          {.y = here.live.dims() == 2 ? here.live.slice(0, i, 1).reshape({row}) : here.live.slice(0, i * row, row),
           .x = ConstTensor(whole.data() + here.range.begin + i * here.range.pitch, DType::f64, Device::cpu, {row})},
          *stream);
  }
}

std::vector<double> HostGenerator::feed(std::span<const std::int32_t> tokens) {
  const auto logits = generator->feed(tokens);
  return {logits.begin(), logits.end()};
}

void on_ranks(const Generator::Options& options, int tp, const std::function<void(int rank, HostGenerator&)>& body) {
  run_ranks(static_cast<int>(options.pp * options.cp) * tp, [&](std::unique_ptr<Communicator> ranks) {
    Generator::Options own = options;
    own.ranks = ranks.get();
    HostGenerator host(own);
    body(ranks->rank(), host);
  });
}

std::unique_ptr<HostRun> trained(const Replica::Options& options) {
  auto run = std::make_unique<HostRun>(options);
  run->replica->init_weights();
  std::vector<std::vector<double>> values;
  std::vector<ConstTensor> tensors;
  for (const auto& named : run->replica->tensors()) {
    values.push_back(to_doubles(named.master, *run->stream));
    if (named.tensor.shape.size() == 1)
      for (std::size_t i = 0; i < values.back().size(); ++i)
        values.back()[i] += 0.3 * std::sin(static_cast<double>(7 * i + named.tensor.name.size()));
    tensors.emplace_back(values.back().data(), DType::f64, Device::cpu, Shape{named.tensor.elements()});
  }
  run->replica->load(tensors);
  return run;
}

TensorValues values_of(const HostRun& run) {
  TensorValues values;
  for (const auto& named : run.replica->tensors()) values[named.tensor.name] = to_doubles(named.master, *run.stream);
  return values;
}

Whole::Whole(Replica& replica, const TokenBatch& batch)
    : V_(replica.model().spec().vocabulary), logits_(batch.tokens.size() * V_) {
  replica.evaluate(batch.tokens, batch.targets, logits_);
}

double Whole::error(std::span<const double> got, std::int64_t t) const {
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < V_; ++i) {
    difference += std::pow(got[i] - logits_[t * V_ + i], 2);
    size += std::pow(logits_[t * V_ + i], 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace lockstep::tests
