#include "support/cases/matmul_cases.h"

#include "kernels/matmul.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

KernelCase make_matmul(DType dtype, const MatmulCase& spec) {
  const bool ta = spec.transpose_a, tb = spec.transpose_b, accumulate = spec.accumulate;
  const auto gaps = row_gap(2, spec.strided);
  KernelCase made;
  made.op = "matmul";
  made.shape = label({spec.m, spec.n, spec.k}) + "_" + (ta ? "t" : "n") + (tb ? "t" : "n") +
               (spec.bias ? "_bias" : "") + (spec.addend ? "_addend" : "") + (accumulate ? "_accumulate" : "") +
               (spec.strided ? "_strided" : "") + (spec.c == dtype ? "" : "_to_" + std::string(name_of(spec.c)));
  made.dtype = dtype;
  made.operands = {
      {"c", {spec.m, spec.n}, spec.c, accumulate ? Role::inout : Role::out, normal(), gaps},
      {"a", ta ? Shape{spec.k, spec.m} : Shape{spec.m, spec.k}, dtype, Role::in, normal(), gaps},
      {"b", tb ? Shape{spec.n, spec.k} : Shape{spec.k, spec.n}, dtype, Role::in, normal(0.1), gaps},
  };
  if (spec.bias) made.operands.push_back({"bias", {spec.n}, dtype});
  if (spec.addend) made.operands.push_back({"addend", {spec.m, spec.n}, spec.c, Role::in, normal(), gaps});
  const bool bias = spec.bias, addend = spec.addend;
  made.run = [=](std::span<const Tensor> t, Stream& stream) {
    matmul({.c = t[0],
            .a = t[1],
            .b = t[2],
            .transpose_a = ta,
            .transpose_b = tb,
            .bias = bias ? t[3] : Tensor(),
            .accumulate = accumulate,
            .addend = addend ? t.back() : Tensor()},
           stream);
  };
  made.reference = [=](std::span<HostTensor> t) {
    // To what the addend says, as if it had been there before.
    if (addend) t[0].value = t.back().value;
    reference::matmul(t[0], t[1], t[2], bias ? &t[3] : nullptr,
                      {.transpose_a = ta, .transpose_b = tb, .accumulate = accumulate || addend});
  };
  return made;
}

Cases matmul_cases(DType dtype) {
  const DType wide = accumulator_of(dtype);
  Cases cases;
  for (const auto [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                               {7, 13, 31},
                               {1, 257, 64},
                               {2, 100, 530},
                               {5, 41, 300},
                               {65, 31, 128},
                               {129, 80, 70},
                               {13, 7, 5000},
                               {3, 1601, 270},
                               {200, 63, 257},
                               {2065, 5, 260}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const MatmulCase plain{.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb, .c = dtype};
        MatmulCase spec = plain;
        cases.push_back(make_matmul(dtype, spec));
        spec.accumulate = spec.strided = true;
        cases.push_back(make_matmul(dtype, spec));
        if (m > 1000 && ta != tb) continue;  // beyond any block of rows: large, so not in every way
        spec = plain;
        spec.addend = true;
        spec.strided = n % 2;
        cases.push_back(make_matmul(dtype, spec));
        spec = plain;
        spec.bias = true;
        cases.push_back(make_matmul(dtype, spec));
        spec.addend = true;
        cases.push_back(make_matmul(dtype, spec));
        spec.addend = false;
        spec.accumulate = true;
        spec.strided = m % 2;
        if (wide != dtype) spec.c = wide;
        cases.push_back(make_matmul(dtype, spec));
        if (wide == dtype) continue;
        spec = plain;
        spec.c = wide;
        cases.push_back(make_matmul(dtype, spec));
      }
  // A product over nothing is zero, and so is a product of no rows: no element at all.
  cases.push_back(make_matmul(dtype, {.m = 5, .n = 3, .k = 0, .addend = true, .c = dtype}));
  for (const bool bias : {false, true}) {
    cases.push_back(make_matmul(dtype, {.m = 5, .n = 3, .k = 0, .bias = bias, .c = dtype}));
    cases.push_back(make_matmul(dtype, {.m = 5, .n = 3, .k = 0, .bias = bias, .accumulate = true, .c = dtype}));
    cases.push_back(make_matmul(dtype, {.m = 0, .n = 3, .k = 4, .bias = bias, .c = dtype}));
    cases.push_back(make_matmul(dtype, {.m = 4, .n = 0, .k = 4, .bias = bias, .c = dtype}));
  }
  return cases;
}

}  // namespace lockstep::tests
