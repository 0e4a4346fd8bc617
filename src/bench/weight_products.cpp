#include "bench/weight_products.h"

#include <algorithm>

#include "bench/kernel_benches.h"
#include "kernels/matmul.h"
#include "parallel/zero_shards.h"

namespace lockstep {

WeightProducts::WeightProducts(const RunSpec& run, const Model& model, TimedTensors& desk)
    : desk_(desk), tokens_(model.B() * model.T()), micro_(run.layout.micro) {
  for (int u = 1; u < model.units(); ++u)  // the embedding has none
    for (const StoredParameter& p : model.unit(u).layout().parameters())
      if (const bool head = u + 1 == model.units(); p.shape.size() == 2)
        matrices_.push_back({p.shape[0], p.shape[1], head ? head_tile(model) : tokens_, head});
  std::int64_t inputs = 0, outputs = 0, largest = 0;
  for (const auto& [out, in, rows, head] : matrices_) {
    if (head) logits_ = desk.sums({rows * out});
    inputs = std::max(inputs, rows * in);
    outputs = std::max(outputs, rows * out);
    largest = std::max(largest, out * in);
    flops_ += 6.0 * static_cast<double>(tokens_ * micro_) * static_cast<double>(out * in);
  }
  x_ = desk.tensor({inputs});
  dx_ = desk.tensor({inputs});
  y_ = desk.tensor({outputs});
  w_ = desk.tensor({largest}, desk.dtype(), 0.02);
  dw_ = desk.tensor({largest}, storage_types(run.precision).gradient);
}

void WeightProducts::run() {
  for (std::int64_t m = 0; m < micro_; ++m)
    for (const auto& [out, in, rows, head] : matrices_)
      for (std::int64_t first = 0; first < tokens_; first += rows) {
        const std::int64_t count = std::min(rows, tokens_ - first);
        const Tensor x = x_.slice(0, 0, count * in).reshape({count, in}),
                     dx = dx_.slice(0, 0, count * in).reshape({count, in}),
                     y = y_.slice(0, 0, count * out).reshape({count, out}),
                     w = w_.slice(0, 0, out * in).reshape({out, in}), dw = dw_.slice(0, 0, out * in).reshape({out, in});
        const Tensor scores = head ? logits_.slice(0, 0, count * out).reshape({count, out}) : y;
        matmul({.c = scores, .a = x, .b = w, .transpose_b = true}, desk_.stream());
        matmul({.c = dx, .a = y, .b = w}, desk_.stream());
        matmul({.c = dw, .a = y, .b = x, .transpose_a = true, .accumulate = m > 0 || first > 0}, desk_.stream());
      }
}

}  // namespace lockstep
