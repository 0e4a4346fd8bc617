#include "kernels/matmul.h"
#include "kernels/quantize.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {

double largest_of(DType type) { return type == DType::f8e4m3 ? 448 : 57344; }

// The smallest power of two that brings amax into the type, not below 2^-62, by trying them.
double scale_for(double amax, DType type) {
  if (!std::isfinite(amax)) return NAN;
  if (amax == 0) return 1;
  double scale = 0x1p-62;
  while (amax / scale > largest_of(type)) scale *= 2;
  return scale;
}

KernelCase amax_case(std::int64_t rows, std::int64_t columns, std::int64_t gap, const Recipe& fill,
                     const std::string& what) {
  KernelCase made{.op = "amax", .shape = label({rows, columns}) + what, .dtype = DType::bf16};
  made.operands = {{"amax", {1}, DType::f32, Role::out}, {"x", {rows, columns}, DType::bf16, Role::in, fill, {0, gap}}};
  made.run = [](std::span<const Tensor> t, Stream& stream) { amax({.amax = t[0], .x = t[1]}, stream); };
  made.reference = [](std::span<HostTensor> t) {
    double most = 0;
    for (const double v : t[1].value) most = std::isnan(v) || std::isnan(most) ? NAN : std::max(most, std::abs(v));
    t[0].set(0, most, 0);
  };
  return made;
}

struct Forms {
  bool straight, turned;
};
KernelCase quantize_case(std::int64_t rows, std::int64_t columns, DType to, Forms forms, std::int64_t gap,
                         const Recipe& fill, const std::string& what) {
  KernelCase made{.op = "quantize",
                  .shape = label({rows, columns}) + (forms.straight ? "_straight" : "") +
                           (forms.turned ? "_turned" : "") + what + "_to_" + std::string(name_of(to)),
                  .dtype = DType::bf16};
  made.operands = {{"scale", {1}, DType::f32, Role::out},
                   {"x", {rows, columns}, DType::bf16, Role::in, fill, {0, gap}},
                   {"amax", {1}, DType::f32}};
  if (forms.straight) made.operands.push_back({"q", {rows, columns}, to, Role::out});
  if (forms.turned) made.operands.push_back({"turned", {columns, rows}, to, Role::out});
  made.prepare = [](std::span<HostTensor> t) {
    t[2].value[0] = 0;
    for (const double v : t[1].value) t[2].value[0] = std::max(t[2].value[0], std::abs(v));
  };
  made.run = [forms](std::span<const Tensor> t, Stream& stream) {
    quantize({.q = forms.straight ? t[3] : Tensor(),
              .turned = forms.turned ? t.back() : Tensor(),
              .scale = t[0],
              .x = t[1],
              .amax = t[2]},
             stream);
  };
  made.reference = [=](std::span<HostTensor> t) {
    const double scale = scale_for(t[2][0], to);
    t[0].set(0, scale, 0);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const double q = round_to(to, t[1][i] / scale);
      if (forms.straight) t[3].set(i, q, 0);
      if (forms.turned) t.back().set(i % columns * rows + i / columns, q, 0);
    }
  };
  return made;
}

struct ProductCase {
  std::int64_t m, n, k;
  DType a = DType::f8e4m3, b = DType::f8e4m3, c = DType::bf16;
  bool bias = false, addend = false, accumulate = false;
};
KernelCase product_case(const ProductCase& spec) {
  KernelCase made{.op = "matmul",
                  .shape = label({spec.m, spec.n, spec.k}) + "_" + std::string(name_of(spec.a)) + "_" +
                           std::string(name_of(spec.b)) + (spec.bias ? "_bias" : "") + (spec.addend ? "_addend" : "") +
                           (spec.accumulate ? "_accumulate" : "") + "_to_" + std::string(name_of(spec.c)),
                  .dtype = DType::bf16};
  made.operands = {
      {"c", {spec.m, spec.n}, spec.c, spec.accumulate ? Role::inout : Role::out},
      {"a", {spec.m, spec.k}, spec.a, Role::in, normal(spec.a == DType::f8e4m3 ? 60 : 9000)},
      {"b", {spec.n, spec.k}, spec.b, Role::in, normal(spec.b == DType::f8e4m3 ? 60 : 9000)},
      {"scale_a", {1}, DType::f32, Role::in, constant(0x1p-6)},
      {"scale_b", {1}, DType::f32, Role::in, constant(0x1p-11)},
  };
  if (spec.bias) made.operands.push_back({"bias", {spec.n}, DType::bf16});
  if (spec.addend) made.operands.push_back({"addend", {spec.m, spec.n}, spec.c});
  made.run = [spec](std::span<const Tensor> t, Stream& stream) {
    matmul({.c = t[0],
            .a = t[1],
            .b = t[2],
            .transpose_b = true,
            .bias = spec.bias ? t[5] : Tensor(),
            .accumulate = spec.accumulate,
            .addend = spec.addend ? t.back() : Tensor(),
            .scale_a = t[3],
            .scale_b = t[4]},
           stream);
  };
  made.reference = [spec](std::span<HostTensor> t) {
    if (spec.addend) t[0].value = t.back().value;
    const std::vector<double> held = t[0].value;
    HostTensor a = t[1];
    for (double& v : a.value) v *= t[3][0] * t[4][0];
    reference::matmul(t[0], a, t[2], spec.bias ? &t[5] : nullptr,
                      {.transpose_b = true, .accumulate = spec.accumulate || spec.addend});
    // A GPU adds up the products of one instruction with fewer bits than fp32 has: about 14. In place it rounds the
    // product to 16 bits before it adds what c held.
    for (std::int64_t i = 0; i < t[0].elements(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double product = spec.accumulate && spec.c == DType::bf16 ? std::abs(t[0].value[at] - held[at]) : 0;
      t[0].set_narrowed(i, 0x1p-13 / unit_roundoff(spec.c) * t[0].magnitude[at] + product);
    }
  };
  return made;
}

}  // namespace

Cases fp8_cases(DType dtype) {
  if (dtype != DType::bf16) return {};
  Cases cases;
  for (const auto& [rows, columns, gap] : {std::array<std::int64_t, 3>{16, 16, 0},
                                           {48, 32, 0},
                                           {16, 144, 8},
                                           {32, 48, 2},  // rows at even places only
                                           {144, 272, 0},
                                           {304, 16, 0},
                                           {1040, 528, 16}}) {
    cases.push_back(amax_case(rows, columns, gap, normal(), ""));
    for (const DType to : {DType::f8e4m3, DType::f8e5m2})
      for (const Forms forms : {Forms{true, false}, {false, true}, {true, true}})
        cases.push_back(quantize_case(rows, columns, to, forms, gap, normal(), ""));
  }
  for (const std::int64_t columns : {43, 48, 5})  // and an odd gap: nothing to read 16 bytes of at once
    cases.push_back(amax_case(5, columns, 3, normal(), ""));
  cases.push_back(amax_case(16, 32, 0, constant(0), "_zeros"));
  cases.push_back(amax_case(16, 32, 0, magnitudes(-130, 120), "_wide"));
  for (const DType to : {DType::f8e4m3, DType::f8e5m2}) {
    const Forms both{true, true};
    cases.push_back(quantize_case(16, 32, to, both, 0, constant(0), "_zeros"));
    // Many of these are subnormal or nothing beside the largest; of the next all are below the least scale's range.
    cases.push_back(quantize_case(32, 48, to, both, 0, magnitudes(-30, 3), "_wide"));
    cases.push_back(quantize_case(16, 32, to, both, 0, magnitudes(-120, -90), "_tiny"));
    cases.push_back(quantize_case(16, 32, to, both, 0, magnitudes(90, 120), "_huge"));
    // Exactly at the largest number of a scale, and one step above it.
    cases.push_back(quantize_case(16, 16, to, both, 0, constant(1.75), "_largest"));
    cases.push_back(quantize_case(16, 16, to, both, 0, constant(1.7578125), "_above_largest"));
  }
  for (const auto& [a, b] :
       {std::pair(DType::f8e4m3, DType::f8e4m3), {DType::f8e5m2, DType::f8e4m3}, {DType::f8e4m3, DType::f8e5m2}})
    for (const DType c : {DType::bf16, DType::f32})
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{16, 16, 16}, {80, 48, 544}, {144, 1040, 32}}) {
        ProductCase spec{.m = m, .n = n, .k = k, .a = a, .b = b, .c = c};
        cases.push_back(product_case(spec));
        spec.addend = true;
        cases.push_back(product_case(spec));
        spec.addend = false;
        spec.accumulate = true;
        cases.push_back(product_case(spec));
        spec.accumulate = false;
        spec.bias = true;
        cases.push_back(product_case(spec));
      }
  return cases;
}

}  // namespace lockstep::tests
