#include <numbers>

#include "support/reference_ops.h"

namespace lockstep::tests::reference {

namespace {
double sigmoid(double g) { return 1 / (1 + std::exp(-g)); }

// GELU's argument of tanh, and its derivative.
constexpr double kCubic = 0.044715;
double inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + kCubic * x * x * x); }
double inner_slope(double x) { return std::sqrt(2 / std::numbers::pi) * (1 + 3 * kCubic * x * x); }
}  // namespace

void swiglu_forward(HostTensor& y, const HostTensor& gate_up) {
  const std::int64_t rows = y.dim(0), width = y.dim(1);
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t f = 0; f < width; ++f) {
      const double gate = gate_up[n * 2 * width + f], up = gate_up[n * 2 * width + width + f];
      const double v = gate * sigmoid(gate) * up;
      y.set(n * width + f, v, std::abs(v) * (1 + std::abs(gate)));  // an exponential is as good as its argument
    }
}

void swiglu_backward(HostTensor& d_gate_up, const HostTensor& dy, const HostTensor& gate_up) {
  const HostTensor in = gate_up;  // d_gate_up may be gate_up
  const std::int64_t rows = dy.dim(0), width = dy.dim(1);
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t f = 0; f < width; ++f) {
      const std::int64_t at = n * 2 * width + f;
      const double gate = in[at], up = in[at + width], d = dy[n * width + f], s = sigmoid(gate);
      const double size = std::abs(d) * s * (1 + std::abs(gate));
      d_gate_up.set(at, d * up * s * (1 + gate * (1 - s)), std::abs(up) * size * (1 + std::abs(gate)));
      d_gate_up.set(at + width, d * gate * s, std::abs(gate) * size);
    }
}

void gelu_forward(HostTensor& y, const HostTensor& x) {
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double v = x[i] / 2 * (1 + std::tanh(inner(x[i])));
    y.set(i, v, std::abs(x[i]));  // 1 + tanh cancels on the left
  }
}

void gelu_backward(HostTensor& dx, const HostTensor& dy, const HostTensor& x) {
  const HostTensor in = x, d = dy;  // dx may be either
  for (std::int64_t i = 0; i < in.elements(); ++i) {
    const double t = std::tanh(inner(in[i])), slope = inner_slope(in[i]);
    const double v = d[i] * ((1 + t) / 2 + in[i] / 2 * (1 - t * t) * slope);
    dx.set(i, v, std::abs(d[i]) * (1 + std::abs(in[i]) * slope));
  }
}

void bias_backward(HostTensor& dbias, const HostTensor& dy, bool accumulate) {
  const std::int64_t rows = dy.dim(0), width = dy.dim(1);
  dbias.terms = static_cast<double>(rows + 1);
  for (std::int64_t c = 0; c < width; ++c) {
    Sum total;
    if (accumulate) total.add(dbias[c]);
    for (std::int64_t n = 0; n < rows; ++n) total.add(dy[n * width + c]);
    dbias.set(c, total.value, total.size);
  }
}

void add(HostTensor& y, const HostTensor& a, const HostTensor& b) {
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    const double v = a[i] + b[i];
    y.set(i, v, std::abs(v));
  }
}

void copy_heads(HostTensor& y, const HostTensor& x, bool accumulate) {
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    const double v = accumulate ? y[i] + x[i] : x[i];
    y.set(i, v, std::abs(v));
  }
}

}  // namespace lockstep::tests::reference
