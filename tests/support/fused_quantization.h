// Kernels that write FP8 without writing bf16 first, beside the two that write one after the other: the same bytes.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>

#include "kernels/layernorm.h"
#include "kernels/quantize.h"
#include "kernels/rmsnorm.h"
#include "kernels/swiglu.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep::tests {

struct FusedQuantization {
  std::function<Tensor(const Shape&, DType)> room;
  std::function<Tensor(const Shape&, std::uint64_t key, double std)> normal;  // of bf16
  Stream& stream;
  std::function<void(const std::string&, const Tensor& fused, const Tensor& apart)> equal;

  // x's rows are `gap` elements apart.
  void norms(std::int64_t rows, std::int64_t width, std::int64_t gap) const {
    const auto name = [&](const char* what) { return fmt::format("{} of {} x {}, {}", what, rows, width, gap); };
    const Tensor x = normal({rows, width + gap}, 1, 3).slice(1, 0, width), y = room({rows, width}, DType::bf16),
                 weight = normal({1, width}, 2, 1).reshape({width}), bias = normal({1, width}, 3, 1).reshape({width}),
                 mean = room({rows}, DType::f32), rstd = room({rows}, DType::f32), amax = room({1}, DType::f32),
                 alone = room({1}, DType::f32);
    const auto forms = [&](const QuantizedNorm& norm) {
      for (const auto& [straight, turned] : {std::pair{true, true}, {true, false}, {false, true}}) {
        const Tensor q[2] = {room({rows, width}, DType::f8e4m3), room({rows, width}, DType::f8e4m3)};
        const Tensor t[2] = {room({width, rows}, DType::f8e4m3), room({width, rows}, DType::f8e4m3)};
        const Tensor scale[2] = {room({1}, DType::f32), room({1}, DType::f32)};
        for (const int i : {0, 1})
          quantize({.q = straight ? q[i] : Tensor{},
                    .turned = turned ? t[i] : Tensor{},
                    .scale = scale[i],
                    .x = i == 0 ? x : y,
                    .amax = amax,
                    .norm = i == 0 ? norm : QuantizedNorm{}},
                   stream);
        const char* what = norm.mean ? "what LayerNorm gave" : "what RMSNorm gave";
        if (straight) equal(name(what), q[0], q[1]);
        if (turned) equal(name(what) + ", turned", t[0], t[1]);
        equal(name("its scale"), scale[0], scale[1]);
      }
    };
    rmsnorm_forward({.y = y, .rstd = rstd, .x = x, .weight = weight, .eps = 1e-5, .amax = amax}, stream);
    forms({.weight = weight, .rstd = rstd});
    rmsnorm_forward({.y = {}, .rstd = rstd, .x = x, .weight = weight, .eps = 1e-5, .amax = alone}, stream);
    equal(name("the largest of RMSNorm's that wrote nothing"), alone, amax);
    layernorm_forward(
        {.y = y, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias, .eps = 1e-5, .amax = amax},
        stream);
    forms({.weight = weight, .bias = bias, .mean = mean, .rstd = rstd});
    layernorm_forward(
        {.y = {}, .mean = mean, .rstd = rstd, .x = x, .weight = weight, .bias = bias, .eps = 1e-5, .amax = alone},
        stream);
    equal(name("the largest of LayerNorm's that wrote nothing"), alone, amax);
  }

  void activations(std::int64_t rows, std::int64_t width, DType type) const {
    const auto name = [&](const char* what) { return fmt::format("{} of {} x {}", what, rows, width); };
    const Tensor gate_up = normal({rows, 2 * width}, 4, 3), dy = normal({rows, width}, 5, 1e-3),
                 y = room({rows, width}, DType::bf16), d = room({rows, 2 * width}, DType::bf16),
                 y_amax = room({1}, DType::f32), amax = room({1}, DType::f32), alone = room({1}, DType::f32);
    swiglu_forward({.y = y, .gate_up = gate_up, .amax = y_amax}, stream);
    swiglu_backward({.d_gate_up = d, .dy = dy, .gate_up = gate_up, .amax = amax}, stream);
    swiglu_backward({.d_gate_up = {}, .dy = dy, .gate_up = gate_up, .amax = alone}, stream);
    equal(name("the largest of SwiGLU's backward that wrote nothing"), alone, amax);
    const Tensor q = room({rows, 2 * width}, type), turned = room({2 * width, rows}, type),
                 scale = room({1}, DType::f32), y_turned = room({width, rows}, DType::f8e4m3),
                 y_scale = room({1}, DType::f32);
    quantize({.q = q, .turned = turned, .scale = scale, .x = d, .amax = amax}, stream);
    quantize({.turned = y_turned, .scale = y_scale, .x = y, .amax = y_amax}, stream);
    for (const bool again : {false, true}) {
      const Tensor d8 = room({rows, 2 * width}, type), d8_turned = room({2 * width, rows}, type),
                   d_scale = room({1}, DType::f32), y8 = room({width, rows}, DType::f8e4m3);
      swiglu_backward_fp8({.d8 = d8,
                           .d8_turned = d8_turned,
                           .scale = d_scale,
                           .dy = dy,
                           .gate_up = gate_up,
                           .amax = amax,
                           .y8_turned = again ? y8 : Tensor{},
                           .y_amax = again ? ConstTensor(y_amax) : ConstTensor{}},
                          stream);
      equal(name("SwiGLU's gradient"), d8, q);
      equal(name("SwiGLU's gradient, turned"), d8_turned, turned);
      equal(name("its scale"), d_scale, scale);
      if (again) equal(name("SwiGLU's output, turned"), y8, y_turned);
    }
  }

  void run_all() const {
    for (const auto& [rows, width] :
         {std::pair<std::int64_t, std::int64_t>{16, 16}, {48, 352}, {144, 272}, {256, 2048}, {1040, 528}}) {
      for (const std::int64_t gap : {0, 8, 3}) norms(rows, width, gap);
      for (const DType type : {DType::f8e5m2, DType::f8e4m3}) activations(rows, width, type);
    }
  }
};

}  // namespace lockstep::tests
