#include "kernels/layernorm.h"
#include "support/cases/norm_cases.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

// Rows lie away from zero: a variance taken as a difference of squares would show.
Recipe rows_off_zero() { return normal(2, 5); }

// mean (index 2) and rstd (3) of x (0), for the backward cases.
void prepare_statistics(Hosts t) {
  HostTensor y = t[0], vector(std::string(), {t[0].dim(-1)}, DType::f64);
  reference::layernorm_forward(y, t[2], t[3], t[0], vector, vector, kNormEps);
}

KernelCase layernorm_forward_case(DType dtype, const Shape& x, bool residual, bool strided) {
  const auto gaps = row_gap(2, strided);
  KernelCase made = norm_case("layernorm_forward", dtype, x, strided);
  made.operands = {
      {"y", x, dtype, Role::out, normal(), gaps},          {"mean", {x[0]}, accumulator_of(dtype), Role::out},
      {"rstd", {x[0]}, accumulator_of(dtype), Role::out},  {"x", x, dtype, Role::in, rows_off_zero(), gaps},
      {"weight", {x[1]}, dtype, Role::in, normal(0.5, 1)}, {"bias", {x[1]}, dtype, Role::in}};
  if (residual) add_residual(made, x, strided);
  made.run = [residual](Tensors t, Stream& stream) {
    layernorm_forward({.y = t[0],
                       .mean = t[1],
                       .rstd = t[2],
                       .x = t[3],
                       .weight = t[4],
                       .bias = t[5],
                       .eps = kNormEps,
                       .residual = residual ? t[6] : Tensor(),
                       .sum = residual ? t[7] : Tensor()},
                      stream);
  };
  made.reference = [residual](Hosts t) {
    reference::layernorm_forward(t[0], t[1], t[2], t[3], t[4], t[5], kNormEps, residual ? &t[6] : nullptr,
                                 residual ? &t[7] : nullptr);
  };
  return made;
}

// After y comes the bias that it needs.
KernelCase layernorm_backward_input_case(DType dtype, const Shape& x, const BackwardInputKind& kind, bool strided) {
  KernelCase made = norm_case("layernorm_backward_input", dtype, x, strided);
  made.operands = {{"x", x, dtype, Role::in, rows_off_zero(), row_gap(2, strided)},
                   {"weight", {x[1]}, dtype, Role::in, normal(0.5, 1)},
                   {"mean", {x[0]}, accumulator_of(dtype)},
                   {"rstd", {x[0]}, accumulator_of(dtype)}};
  const BackwardInputOperands at = add_gradients(made, x, kind, strided);
  if (kind.again) made.operands.push_back({"bias", {x[1]}, dtype, Role::in});
  made.run = [=](Tensors t, Stream& stream) {
    layernorm_backward_input({.dx = t[at.dx],
                              .dy = t[at.dy],
                              .x = t[0],
                              .weight = t[1],
                              .mean = t[2],
                              .rstd = t[3],
                              .dresidual = kind.dresidual ? t[at.dresidual] : Tensor(),
                              .y = kind.again ? t[at.y] : Tensor(),
                              .bias = kind.again ? t[at.y + 1] : Tensor()},
                             stream);
  };
  made.prepare = prepare_statistics;
  made.reference = [=](Hosts t) {
    HostTensor out = t[at.dx];
    reference::layernorm_backward_input(out, t[at.dy], t[0], t[1], t[2], t[3],
                                        kind.dresidual ? &t[at.dresidual] : nullptr);
    t[at.dx] = out;
    if (kind.again) reference::layernorm_again(t[at.y], t[0], t[1], t[at.y + 1], t[2], t[3]);
  };
  return made;
}

KernelCase layernorm_backward_weight_case(DType dtype, const Shape& x, DType gradient, bool accumulate, bool strided) {
  const auto gaps = row_gap(2, strided);
  const Role role = accumulate ? Role::inout : Role::out;
  KernelCase made = norm_case("layernorm_backward_weight", dtype, x, strided);
  made.operands = {{"x", x, dtype, Role::in, rows_off_zero(), gaps}, {"dweight", {x[1]}, gradient, role},
                   {"mean", {x[0]}, accumulator_of(dtype)},          {"rstd", {x[0]}, accumulator_of(dtype)},
                   {"dy", x, dtype, Role::in, normal(), gaps},       {"dbias", {x[1]}, gradient, role}};
  made.shape += gradient_label(dtype, gradient, accumulate);
  made.run = [accumulate](Tensors t, Stream& stream) {
    layernorm_backward_weight(
        {.dweight = t[1], .dbias = t[5], .dy = t[4], .x = t[0], .mean = t[2], .rstd = t[3], .accumulate = accumulate},
        stream);
  };
  made.prepare = prepare_statistics;
  made.reference = [accumulate](Hosts t) {
    reference::layernorm_backward_weight(t[1], t[5], t[4], t[0], t[2], t[3], accumulate);
  };
  return made;
}
}  // namespace

Cases layernorm_cases(DType dtype) {
  return norm_cases({layernorm_forward_case, layernorm_backward_input_case, layernorm_backward_weight_case}, dtype,
                    {{1, 1}, {7, 13}, {31, 257}, {3, 5000}, {5, 1000}, {3, 1600}, {3, 2056}, {65, 64}, {1031, 20}});
}

}  // namespace lockstep::tests
