#include "support/trained.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "checkpoint/checkpoint_reader.h"
#include "support/run_results.h"
#include "tensor/cpu/stream.h"
#include "tensor/memory.h"

namespace lockstep::tests {

namespace fs = std::filesystem;

Trained trained_in(const fs::path& out, std::int64_t step) {
  Trained trained{.losses = losses_in(out)};
  const Checkpoint checkpoint = open_checkpoint(out / "checkpoints" / fmt::format("step-{:08}", step));
  if (checkpoint.progress().step != step) throw std::runtime_error("a checkpoint of another step");
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
  cpu::Stream stream(*memory, 1);
  for (const ManifestTensor& tensor : checkpoint.manifest().tensors) {
    const std::int64_t count =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    std::vector<double>& values = trained.state[{tensor.part, tensor.name}];
    values.resize(static_cast<std::size_t>(count));
    const StateTensor whole{.part = tensor.part,
                            .tensor = {tensor.name, tensor.shape},
                            .range = flat_range(0, count),
                            .live = Tensor(values.data(), DType::f64, Device::cpu, {count})};
    checkpoint.load({&whole, 1}, stream);
  }
  return trained;
}

double distance(const Trained& a, const Trained& b) {
  constexpr double kOther = std::numeric_limits<double>::infinity();
  if (a.losses.size() != b.losses.size() || a.state.size() != b.state.size()) return kOther;
  double worst = 0;
  const auto compare = [&](double x, double y, double scale) {
    if (std::memcmp(&x, &y, sizeof x) == 0) return;
    const double relative = std::abs(x - y) / std::max(scale, 1e-300);
    worst = std::isfinite(relative) ? std::max({worst, relative, 1e-300}) : kOther;
  };
  for (std::size_t i = 0; i < a.losses.size(); ++i) compare(a.losses[i], b.losses[i], std::abs(b.losses[i]));
  for (const auto& [name, values] : a.state) {
    const auto at = b.state.find(name);
    if (at == b.state.end() || at->second.size() != values.size()) return kOther;
    double largest = 0;
    for (const double value : at->second) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i) compare(values[i], at->second[i], largest);
  }
  return worst;
}

}  // namespace lockstep::tests
