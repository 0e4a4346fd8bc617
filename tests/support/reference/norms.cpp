#include "support/reference_ops.h"

namespace lockstep::tests::reference {

namespace {
// x + residual as it is stored: what is normalised is the rounded sum.
HostTensor joined(const HostTensor& x, const HostTensor* residual, HostTensor* sum) {
  if (!residual) return x;
  HostTensor stored = x;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double exact = x[i] + (*residual)[i];
    stored.value[i] = round_to(sum->dtype, exact);
    sum->set(i, exact, std::abs(exact));
  }
  return stored;
}

double start(const HostTensor& t, std::int64_t i, bool accumulate) { return accumulate ? t[i] : 0.0; }
}  // namespace

void rmsnorm_forward(HostTensor& y, HostTensor& rstd, const HostTensor& x, const HostTensor& weight, double eps,
                     const HostTensor* residual, HostTensor* sum) {
  const HostTensor in = joined(x, residual, sum);
  const std::int64_t width = x.dim(-1), rows = x.elements() / width;
  y.terms = rstd.terms = static_cast<double>(width);
  for (std::int64_t n = 0; n < rows; ++n) {
    double squares = 0;
    for (std::int64_t c = 0; c < width; ++c) squares += in[n * width + c] * in[n * width + c];
    const double r = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    rstd.set(n, r, r);
    for (std::int64_t c = 0; c < width; ++c) {
      const double v = in[n * width + c] * r * weight[c];
      y.set(n * width + c, v, std::abs(v));
    }
  }
}

void rmsnorm_backward_input(HostTensor& dx, const HostTensor& dy, const HostTensor& x, const HostTensor& weight,
                            const HostTensor& rstd, const HostTensor* dresidual) {
  const std::int64_t width = x.dim(-1), rows = x.elements() / width;
  dx.terms = static_cast<double>(width);
  for (std::int64_t n = 0; n < rows; ++n) {
    Sum dot;  // mean of weight · dy · xhat
    for (std::int64_t c = 0; c < width; ++c)
      dot.add(weight[c] * dy[n * width + c] * x[n * width + c] * rstd[n] / static_cast<double>(width));
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t i = n * width + c;
      const double xhat = x[i] * rstd[n];
      Sum total;
      total.add(rstd[n] * weight[c] * dy[i]);
      total.add(-rstd[n] * xhat * dot.value, std::abs(rstd[n] * xhat) * dot.size);
      if (dresidual) total.add((*dresidual)[i]);
      dx.set(i, total.value, total.size);
    }
  }
}

void rmsnorm_backward_weight(HostTensor& dweight, const HostTensor& dy, const HostTensor& x, const HostTensor& rstd,
                             bool accumulate) {
  const std::int64_t width = x.dim(-1), rows = x.elements() / width;
  dweight.terms = static_cast<double>(rows + 1);
  for (std::int64_t c = 0; c < width; ++c) {
    Sum total;
    total.add(start(dweight, c, accumulate));
    for (std::int64_t n = 0; n < rows; ++n) total.add(dy[n * width + c] * x[n * width + c] * rstd[n]);
    dweight.set(c, total.value, total.size);
  }
}

void rmsnorm_again(HostTensor& y, const HostTensor& x, const HostTensor& weight, const HostTensor& rstd) {
  const std::int64_t width = x.dim(-1);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double v = x[i] * rstd[i / width] * weight[i % width];
    y.set(i, v, std::abs(v));
  }
}

void layernorm_again(HostTensor& y, const HostTensor& x, const HostTensor& weight, const HostTensor& bias,
                     const HostTensor& mean, const HostTensor& rstd) {
  const std::int64_t width = x.dim(-1);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double m = mean[i / width], r = rstd[i / width], w = weight[i % width], b = bias[i % width];
    y.set(i, (x[i] - m) * r * w + b, (std::abs(x[i]) + std::abs(m)) * r * std::abs(w) + std::abs(b));
  }
}

void layernorm_forward(HostTensor& y, HostTensor& mean, HostTensor& rstd, const HostTensor& x, const HostTensor& weight,
                       const HostTensor& bias, double eps, const HostTensor* residual, HostTensor* sum) {
  const HostTensor in = joined(x, residual, sum);
  const std::int64_t width = x.dim(-1), rows = x.elements() / width;
  const double count = static_cast<double>(width);
  y.terms = mean.terms = rstd.terms = count;
  for (std::int64_t n = 0; n < rows; ++n) {
    const double* row = in.value.data() + n * width;
    Sum average;
    for (std::int64_t c = 0; c < width; ++c) average.add(row[c] / count);
    double variance = 0;
    for (std::int64_t c = 0; c < width; ++c) variance += (row[c] - average.value) * (row[c] - average.value) / count;
    const double r = 1 / std::sqrt(variance + eps);
    // An error in the mean is one of its size, seen against the deviation: offset · r.
    const double offset = average.size * r;
    mean.set(n, average.value, average.size);
    rstd.set(n, r, r * (1 + offset));
    for (std::int64_t c = 0; c < width; ++c) {
      const double xhat = (row[c] - average.value) * r;
      const double size = std::abs(weight[c]) * (std::abs(row[c]) * r + offset + std::abs(xhat) * (1 + offset));
      y.set(n * width + c, xhat * weight[c] + bias[c], size + std::abs(bias[c]));
    }
  }
}

void layernorm_backward_input(HostTensor& dx, const HostTensor& dy, const HostTensor& x, const HostTensor& weight,
                              const HostTensor& mean, const HostTensor& rstd, const HostTensor* dresidual) {
  const std::int64_t width = x.dim(-1), rows = x.elements() / width;
  const double count = static_cast<double>(width);
  dx.terms = count;
  for (std::int64_t n = 0; n < rows; ++n) {
    const auto xhat = [&](std::int64_t i) { return (x[i] - mean[n]) * rstd[n]; };
    const auto xhat_size = [&](std::int64_t i) { return (std::abs(x[i]) + std::abs(mean[n])) * rstd[n]; };
    Sum average, dot;
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t i = n * width + c;
      const double g = weight[c] * dy[i];
      average.add(g / count);
      dot.add(g * xhat(i) / count, std::abs(g) * xhat_size(i) / count);
    }
    for (std::int64_t c = 0; c < width; ++c) {
      const std::int64_t i = n * width + c;
      Sum total;
      total.add(rstd[n] * weight[c] * dy[i]);
      total.add(-rstd[n] * average.value, rstd[n] * average.size);
      total.add(-rstd[n] * xhat(i) * dot.value, rstd[n] * xhat_size(i) * dot.size);
      if (dresidual) total.add((*dresidual)[i]);
      dx.set(i, total.value, total.size);
    }
  }
}

void layernorm_backward_weight(HostTensor& dweight, HostTensor& dbias, const HostTensor& dy, const HostTensor& x,
                               const HostTensor& mean, const HostTensor& rstd, bool accumulate) {
  const std::int64_t width = x.dim(-1), rows = x.elements() / width;
  dweight.terms = dbias.terms = static_cast<double>(rows + 1);
  for (std::int64_t c = 0; c < width; ++c) {
    Sum weight, bias;
    weight.add(start(dweight, c, accumulate));
    bias.add(start(dbias, c, accumulate));
    for (std::int64_t n = 0; n < rows; ++n) {
      const std::int64_t i = n * width + c;
      weight.add(dy[i] * (x[i] - mean[n]) * rstd[n], std::abs(dy[i]) * (std::abs(x[i]) + std::abs(mean[n])) * rstd[n]);
      bias.add(dy[i]);
    }
    dweight.set(c, weight.value, weight.size);
    dbias.set(c, bias.value, bias.size);
  }
}

}  // namespace lockstep::tests::reference
