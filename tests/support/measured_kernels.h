// Kernels that find the largest magnitude of what they write, each run once, in all their ways: of whole packs and
// element by element, of rows that fill no block, with a residual or without.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>

#include "kernels/elementwise.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep::tests {

struct MeasuredKernels {
  std::function<Tensor(const Shape&, DType)> room;
  std::function<Tensor(const Shape&, std::uint64_t key, double std)> normal;  // of bf16
  Stream& stream;
  // The name of a kernel, what it has written (2 dims), and the largest magnitude that it found.
  std::function<void(const std::string&, const Tensor& written, const Tensor& found)> take;

  // `bad`: an element of x is this, and so is or becomes something of what is written.
  void run(std::int64_t rows, std::int64_t width, double bad = 0) const {
    const Tensor found = room({1}, DType::f32);
    const auto flat = [](const Tensor& t) { return t.reshape({t.elements()}); };
    const auto spoiled = [&](const Tensor& x) {
      if (bad != 0) fill({.y = flat(x).slice(0, x.elements() - x.dim(1) / 2, 1), .value = bad}, stream);
      return x;
    };
    const auto give = [&](const char* name, const Tensor& written) {
      take(fmt::format("{} of {} x {}, {}", name, rows, width, bad), written, found);
    };
    const auto like_x = [&](DType type = DType::bf16) { return room({rows, width}, type); };
    const auto statistic = [&] { return room({rows}, DType::f32); };
    const Tensor x = spoiled(normal({rows, width}, 1, 3)), other = normal({rows, width}, 2, 2),
                 dy = normal({rows, width}, 3, 1e-3), weight = normal({1, width}, 4, 1).reshape({width}),
                 bias = normal({1, width}, 5, 1).reshape({width});
    const Tensor y = like_x(), sum = like_x(), dx = like_x(), again = like_x(), mean = statistic(), rstd = statistic();

    for (const double eps : {1e-5, 0.0}) {  // with nothing to keep rows that are not there from being infinite
      rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .weight = weight, .eps = eps, .amax = found}, stream);
      give("rmsnorm_forward", y);
    }
    rmsnorm_forward(
        {.y = y, .rstd = rstd, .x = x, .weight = weight, .eps = 1e-5, .residual = other, .sum = sum, .amax = found},
        stream);
    give("rmsnorm_forward with a residual", y);
    rmsnorm_backward_input({.dx = dx, .dy = dy, .x = sum, .weight = weight, .rstd = rstd, .amax = found}, stream);
    give("rmsnorm_backward_input", dx);
    rmsnorm_backward_input(
        {.dx = dx, .dy = dy, .x = sum, .weight = weight, .rstd = rstd, .dresidual = other, .y = again, .amax = found},
        stream);
    give("rmsnorm_backward_input with a residual, and again", dx);

    layernorm_forward(
        {.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias, .eps = 1e-5, .amax = found},
        stream);
    give("layernorm_forward", y);
    layernorm_forward({.y = y,
                       .mean = mean,
                       .rstd = rstd,
                       .x = x,
                       .weight = weight,
                       .bias = bias,
                       .eps = 1e-5,
                       .residual = other,
                       .sum = sum,
                       .amax = found},
                      stream);
    give("layernorm_forward with a residual", y);
    layernorm_backward_input(
        {.dx = dx, .dy = dy, .x = sum, .weight = weight, .mean = mean, .rstd = rstd, .amax = found}, stream);
    give("layernorm_backward_input", dx);
    layernorm_backward_input({.dx = dx,
                              .dy = dy,
                              .x = sum,
                              .weight = weight,
                              .mean = mean,
                              .rstd = rstd,
                              .dresidual = other,
                              .y = again,
                              .bias = bias,
                              .amax = found},
                             stream);
    give("layernorm_backward_input with a residual, and again", dx);

    const Tensor gate_up = spoiled(normal({rows, 2 * width}, 6, 3)), d_gate_up = room({rows, 2 * width}, DType::bf16);
    swiglu_forward({.y = y, .gate_up = gate_up, .amax = found}, stream);
    give("swiglu_forward", y);
    for (const bool with_y : {false, true}) {
      swiglu_backward({.d_gate_up = d_gate_up, .dy = dy, .gate_up = gate_up, .y = with_y ? y : Tensor{}, .amax = found},
                      stream);
      give(with_y ? "swiglu_backward, and again" : "swiglu_backward", d_gate_up);
    }

    // Two of three heads of each token, as queries and keys lie beside values, whose values are larger.
    for (const bool inverse : {false, true}) {
      const std::int64_t head = 2 * ((width + 1) / 2);
      const Tensor heads = normal({rows, 3 * head}, 7, 1), turned = heads.slice(1, 0, 2 * head);
      for (std::int64_t row = 0; row < rows; ++row)
        fill({.y = flat(heads).slice(0, (3 * row + 2) * head, head), .value = 1e6}, stream);
      if (bad != 0) fill({.y = flat(heads).slice(0, (rows - 1) * 3 * head + 1, 1), .value = bad}, stream);
      const Tensor cos = room({rows, head / 2}, DType::f32), sin = room({rows, head / 2}, DType::f32);
      fill({.y = cos, .value = 0.6}, stream);
      fill({.y = sin, .value = 0.8}, stream);
      rope({.x = turned.split(1, 2, head).split(0, 1, rows), .cos = cos, .sin = sin, .inverse = inverse, .amax = found},
           stream);
      give(inverse ? "rope back" : "rope", turned);
    }
  }

  void run_all() const {
    for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{3, 16},
                                      {40, 352},
                                      {5, 43},
                                      {1, 2},
                                      {513, 2048},
                                      {7, 5000},
                                      {3, 9000},
                                      {2, 20000}})
      run(rows, width);
    for (const double bad : {double{NAN}, double{INFINITY}})
      for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{40, 352}, {5, 43}}) run(rows, width, bad);
  }
};

}  // namespace lockstep::tests
