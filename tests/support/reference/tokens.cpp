// The ends of a model: embedding, rotary positions, loss.
#include <algorithm>
#include <numbers>

#include "kernels/cross_entropy.h"
#include "support/reference_ops.h"

namespace lockstep::tests::reference {

void cross_entropy(HostTensor& losses, HostTensor* dlogits, const HostTensor& logits, const HostTensor& targets,
                   double scale) {
  const HostTensor in = logits;  // dlogits may be logits
  const std::int64_t rows = in.dim(0), width = in.dim(1);
  losses.terms = static_cast<double>(width);
  if (dlogits) dlogits->terms = static_cast<double>(width);
  for (std::int64_t n = 0; n < rows; ++n) {
    const double* row = in.value.data() + n * width;
    const std::int64_t target = static_cast<std::int64_t>(targets[n]);
    const double top = *std::max_element(row, row + width);
    double total = 0;
    for (std::int64_t v = 0; v < width; ++v) total += std::exp(row[v] - top);
    const double lse = top + std::log(total);
    const bool ignored = target == kIgnoredTarget;
    if (ignored)
      losses.set(n, 0, 0);
    else
      losses.set(n, lse - row[target], 1 + std::abs(top) + std::abs(row[target]));
    for (std::int64_t v = 0; dlogits && v < width; ++v) {
      if (ignored) {
        dlogits->set(n * width + v, 0, 0);
        continue;
      }
      const double p = std::exp(row[v] - lse);
      Sum gradient;
      gradient.add(scale * p, std::abs(scale) * p * (1 + std::abs(row[v] - top)));
      if (v == target) gradient.add(-scale);
      dlogits->set(n * width + v, gradient.value, gradient.size);
    }
  }
}

namespace {
// Whether the table has this row; a whole one has all.
bool holds(const HostTensor& table, std::int64_t row, std::optional<std::int64_t> first) {
  return !first || (row >= 0 && row < table.dim(0));
}
}  // namespace

void embedding_forward(HostTensor& y, const HostTensor& table, const HostTensor& tokens,
                       const HostTensor* position_table, const HostTensor* positions,
                       std::optional<std::int64_t> first) {
  const std::int64_t batch = y.dim(0), length = y.dim(1), width = y.dim(2);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < length; ++t)
      for (std::int64_t c = 0; c < width; ++c) {
        const std::int64_t row = static_cast<std::int64_t>(tokens[b * length + t]) - first.value_or(0);
        double v = holds(table, row, first) ? table[row * width + c] : 0;
        const std::int64_t at = positions && positions->shape.dims() == 2 ? b * length + t : t;
        if (positions) v += (*position_table)[static_cast<std::int64_t>((*positions)[at]) * width + c];
        y.set((b * length + t) * width + c, v, std::abs(v));
      }
}

void embedding_backward(HostTensor& dtable, const HostTensor& dy, const HostTensor& indices, bool accumulate,
                        std::optional<std::int64_t> first) {
  const std::int64_t batch = dy.dim(0), length = dy.dim(1), width = dy.dim(2);
  std::vector<Sum> sums(dtable.value.size());
  for (std::size_t i = 0; accumulate && i < sums.size(); ++i) sums[i].add(dtable.value[i]);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < length; ++t) {
      const double index = indices[indices.shape.dims() == 2 ? b * length + t : t];
      const std::int64_t row = static_cast<std::int64_t>(index) - first.value_or(0);
      if (!holds(dtable, row, first)) continue;
      for (std::int64_t c = 0; c < width; ++c) {
        Sum& sum = sums[static_cast<std::size_t>(row * width + c)];
        sum.add(dy[(b * length + t) * width + c]);
      }
    }
  dtable.terms = static_cast<double>(batch * length);
  for (std::size_t i = 0; i < sums.size(); ++i) dtable.set(static_cast<std::int64_t>(i), sums[i].value, sums[i].size);
}

void rope_table(HostTensor& cos, HostTensor& sin, const HostTensor& positions, double theta,
                const std::optional<RopeSlowing>& slowing) {
  const std::int64_t length = cos.dim(0), half = cos.dim(1);
  for (std::int64_t i = 0; i < half; ++i) {
    double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    if (slowing) {
      // How often the wave turns over the original context decides: often, as it is; seldom, slowed; between, a
      // mixture.
      const double turns = slowing->original_positions * frequency / (2 * std::numbers::pi);
      const double mix = std::clamp(
          (turns - slowing->low_freq_factor) / (slowing->high_freq_factor - slowing->low_freq_factor), 0.0, 1.0);
      frequency = (1 - mix) * frequency / slowing->factor + mix * frequency;
    }
    for (std::int64_t t = 0; t < length; ++t) {
      const double angle = positions[t] * frequency;
      // Double angles of 1e5 turn still leave 1e-11, far below float; in fp64 the angle's own rounding is what remains.
      cos.set(t * half + i, std::cos(angle), cos.dtype == DType::f64 ? 1 + std::abs(angle) : 1);
      sin.set(t * half + i, std::sin(angle), sin.dtype == DType::f64 ? 1 + std::abs(angle) : 1);
    }
  }
}

void rope(HostTensor& x, const HostTensor& cos, const HostTensor& sin, bool inverse, const HostTensor* positions) {
  const std::int64_t batch = x.dim(0), length = x.dim(1), heads = x.dim(2), width = x.dim(3), half = width / 2;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < length; ++t)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < half; ++i) {
          const std::int64_t at = ((b * length + t) * heads + h) * width + i;
          const auto row = positions ? static_cast<std::int64_t>((*positions)[b * length + t]) : t;
          const double c = cos[row * half + i], s = inverse ? -sin[row * half + i] : sin[row * half + i];
          const double left = x[at], right = x[at + half];
          x.set(at, left * c - right * s, std::abs(left * c) + std::abs(right * s));
          x.set(at + half, right * c + left * s, std::abs(right * c) + std::abs(left * s));
        }
}

}  // namespace lockstep::tests::reference
