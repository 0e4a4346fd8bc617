#include "support/serial_sparsity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "support/devices.h"
#include "support/host_run.h"

namespace lockstep::tests {

namespace {
using Numbers = std::vector<double>;
}

bool is_block_matrix(const LogicalTensor& tensor) {
  const bool of_block = tensor.name.find("layers.") != std::string::npos || tensor.name.find("h.") == 0 ||
                        tensor.name.find(".h.") != std::string::npos;
  return of_block && tensor.shape.size() == 2;
}

double plain_share(const SparsitySpec& s, std::int64_t steps) {
  const double whole = s.kind == SparsityKind::two_of_four ? 0.5 : s.share;
  if (steps == s.end) return whole;
  const double x = static_cast<double>(steps - s.begin) / static_cast<double>(s.end - s.begin);
  return s.schedule == SparsitySchedule::linear ? whole * x : whole * (1 - std::pow(1 - x, 3));
}

std::vector<bool> plain_mask(const LogicalTensor& tensor, const Numbers& values, const std::vector<bool>& masked,
                             bool groups_of_four, bool inputs_first, double share) {
  const std::size_t n = values.size(), rows = static_cast<std::size_t>(tensor.shape[0]), columns = n / rows;
  // Which of two elements stays longer.
  const auto larger = [&](std::size_t a, std::size_t b) {
    if (masked[a] != masked[b]) return !masked[a];
    if (std::abs(values[a]) != std::abs(values[b])) return std::abs(values[a]) > std::abs(values[b]);
    return a < b;
  };
  std::vector<int> protection(n, 0);  // by element: 2 for the two largest of its four, 1 for the third, 0 for the last
  if (groups_of_four) {
    const std::size_t inputs = inputs_first ? rows : columns, outputs = n / inputs;
    for (std::size_t out = 0; out < outputs; ++out)
      for (std::size_t in = 0; in < inputs; in += 4) {
        std::vector<std::size_t> group;
        for (std::size_t i = in; i < in + 4; ++i) group.push_back(inputs_first ? i * outputs + out : out * inputs + i);
        std::sort(group.begin(), group.end(), larger);
        protection[group[0]] = protection[group[1]] = 2;
        protection[group[2]] = 1;
      }
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return protection[a] != protection[b] ? protection[a] > protection[b] : larger(a, b);
  });
  const auto dropped = static_cast<std::size_t>(std::llround(share * static_cast<double>(n)));
  std::vector<bool> now(n);
  for (std::size_t i = n - dropped; i < n; ++i) now[order[i]] = true;
  for (std::size_t i = 0; i < n; ++i) EXPECT_TRUE(now[i] || !masked[i]) << tensor.name << ": a masked weight came back";
  return now;
}

SparseLearned learn_sparsely(const Replica::Options& o, int steps) {
  Replica::Options one = o;
  one.layout = {};
  one.sparsity = {};
  HostRun run(one);
  run.replica->init_weights();
  SparseLearned result;
  Learned& learned = result.learned;
  std::map<std::string, std::size_t> begins;
  Learned::Tensor last{};
  const std::vector<LogicalTensor> tensors = logical_tensors(run.replica->model());
  for (const LogicalTensor& t : tensors) {
    begins[t.name] = static_cast<std::size_t>(last.begin + last.count);
    last = {t.name, last.begin + last.count, t.elements()};
    learned.tensors.push_back(last);
  }
  const auto elements = static_cast<std::size_t>(last.begin + last.count);
  const auto read = [&](Tensor Replica::Named::*which) {
    Numbers all(elements);
    for (const auto& t : run.replica->tensors())
      t.put(to_doubles(t.*which, *run.stream), std::span(all).subspan(begins.at(t.tensor.name)));
    return all;
  };
  Numbers weights = read(&Replica::Named::master), m(elements), v(elements);
  std::vector<bool>& masked = result.masked;
  masked.assign(elements, false);
  for (int step = 0; step < steps; ++step) {
    const SparsitySpec& s = o.sparsity;
    if (step > s.begin && step <= s.end && (step - s.begin) % s.every == 0)
      for (const LogicalTensor& t : tensors) {
        if (!is_block_matrix(t)) continue;
        const auto begin = static_cast<std::ptrdiff_t>(begins.at(t.name)), end = begin + t.elements();
        const std::vector<bool> now =
            plain_mask(t, Numbers(weights.begin() + begin, weights.begin() + end),
                       std::vector<bool>(masked.begin() + begin, masked.begin() + end),
                       s.kind == SparsityKind::two_of_four, o.spec.in_out_weights, plain_share(s, step));
        std::copy(now.begin(), now.end(), masked.begin() + begin);
      }
    for (std::size_t i = 0; i < elements; ++i)
      if (masked[i]) weights[i] = m[i] = v[i] = 0;

    std::vector<ConstTensor> values;
    std::vector<Buffer> buffers;
    for (const Learned::Tensor& t : learned.tensors) {
      buffers.push_back(run.memory->allocate(t.count * 8, Tag::data));
      std::memcpy(buffers.back().data(), weights.data() + t.begin, static_cast<std::size_t>(t.count * 8));
      values.push_back(view(buffers.back(), DType::f64, {t.count}));
    }
    run.replica->load(values);
    const TokenBatch batch = random_batch(o, static_cast<unsigned>(step));
    learned.losses.push_back(run.replica->compute_gradients(batch.tokens, batch.targets));
    Numbers gradient = read(&Replica::Named::gradient);
    double square = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      if (masked[i]) gradient[i] = 0;
      square += gradient[i] * gradient[i];
    }
    const OptimizerSpec& how = o.optimizer;
    const double norm = std::sqrt(square), scale = how.clip > 0 ? std::min(1.0, how.clip / (norm + 1e-6)) : 1;
    learned.norms.push_back(norm);
    learned.gradients.push_back({gradient});
    const double first = 1 - std::pow(how.beta1, step + 1), next = std::sqrt(1 - std::pow(how.beta2, step + 1));
    for (const LogicalTensor& t : tensors)
      for (std::size_t i = begins.at(t.name); i < begins.at(t.name) + static_cast<std::size_t>(t.elements()); ++i) {
        if (masked[i]) continue;
        const double g = gradient[i] * scale, decay = t.shape.size() >= 2 ? how.weight_decay : 0;
        weights[i] -= how.learning_rate * decay * weights[i];
        m[i] = how.beta1 * m[i] + (1 - how.beta1) * g;
        v[i] = how.beta2 * v[i] + (1 - how.beta2) * g * g;
        weights[i] -= how.learning_rate / first * m[i] / (std::sqrt(v[i]) / next + how.eps);
      }
  }
  learned.copies = {weights};
  return result;
}

}  // namespace lockstep::tests
