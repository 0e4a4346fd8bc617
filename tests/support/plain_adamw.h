// AdamW as its paper has it, and clipping by the gradient's own norm, in loops over doubles.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "spec/model/parameters.h"
#include "spec/run/optimizer_spec.h"

namespace lockstep::tests {

using PlainValues = std::vector<std::vector<double>>;  // by logical tensor

struct PlainAdamW {
  PlainValues w, m, v;

  // All of them start at these weights; `t`: the update's number, from 1 on.
  explicit PlainAdamW(const PlainValues& start) : w(start), m(start), v(start) {
    for (PlainValues* zero : {&m, &v})
      for (auto& tensor : *zero) std::ranges::fill(tensor, 0.0);
  }
  void update(const PlainValues& g, const OptimizerSpec& o, double rate, std::int64_t t,
              const std::vector<LogicalTensor>& names) {
    double square = 0;
    for (const auto& tensor : g)
      for (const double x : tensor) square += x * x;
    const double norm = std::sqrt(square), scale = std::min(1.0, o.clip / (norm + 1e-6));
    for (std::size_t i = 0; i < g.size(); ++i)
      for (std::size_t e = 0; e < g[i].size(); ++e) {
        const double x = g[i][e] * scale;
        m[i][e] = o.beta1 * m[i][e] + (1 - o.beta1) * x;
        v[i][e] = o.beta2 * v[i][e] + (1 - o.beta2) * x * x;
        if (names[i].shape.size() > 1) w[i][e] -= rate * o.weight_decay * w[i][e];
        const double mean = m[i][e] / (1 - std::pow(o.beta1, t)), spread = v[i][e] / (1 - std::pow(o.beta2, t));
        w[i][e] -= rate * mean / (std::sqrt(spread) + o.eps);
      }
  }
};

}  // namespace lockstep::tests
