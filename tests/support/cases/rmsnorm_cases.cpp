#include "kernels/rmsnorm.h"
#include "support/cases/norm_cases.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

KernelCase rmsnorm_forward_case(DType dtype, const Shape& x, bool residual, bool strided) {
  const auto gaps = row_gap(x.dims(), strided);
  KernelCase made = norm_case("rmsnorm_forward", dtype, x, strided);
  made.operands = {{"y", x, dtype, Role::out, normal(), gaps},
                   {"rstd", statistics_shape(x), accumulator_of(dtype), Role::out},
                   {"x", x, dtype, Role::in, normal(3), gaps},
                   {"weight", {x[-1]}, dtype, Role::in, normal(0.5, 1)}};
  if (residual) add_residual(made, x, strided);
  made.run = [residual](Tensors t, Stream& stream) {
    rmsnorm_forward({.y = t[0],
                     .rstd = t[1],
                     .x = t[2],
                     .weight = t[3],
                     .eps = kNormEps,
                     .residual = residual ? t[4] : Tensor(),
                     .sum = residual ? t[5] : Tensor()},
                    stream);
  };
  made.reference = [residual](Hosts t) {
    reference::rmsnorm_forward(t[0], t[1], t[2], t[3], kNormEps, residual ? &t[4] : nullptr,
                               residual ? &t[5] : nullptr);
  };
  return made;
}

KernelCase rmsnorm_backward_input_case(DType dtype, const Shape& x, const BackwardInputKind& kind, bool strided) {
  KernelCase made = norm_case("rmsnorm_backward_input", dtype, x, strided);
  made.operands = {{"x", x, dtype, Role::in, normal(3), row_gap(x.dims(), strided)},
                   {"weight", {x[-1]}, dtype, Role::in, normal(0.5, 1)},
                   {"rstd", statistics_shape(x), accumulator_of(dtype)}};
  const BackwardInputOperands at = add_gradients(made, x, kind, strided);
  made.run = [=](Tensors t, Stream& stream) {
    rmsnorm_backward_input({.dx = t[at.dx],
                            .dy = t[at.dy],
                            .x = t[0],
                            .weight = t[1],
                            .rstd = t[2],
                            .dresidual = kind.dresidual ? t[at.dresidual] : Tensor(),
                            .y = kind.again ? t[at.y] : Tensor()},
                           stream);
  };
  made.prepare = [](Hosts t) {
    HostTensor y = t[0];
    reference::rmsnorm_forward(y, t[2], t[0], t[1], kNormEps);
  };
  made.reference = [=](Hosts t) {
    HostTensor out = t[at.dx];
    reference::rmsnorm_backward_input(out, t[at.dy], t[0], t[1], t[2], kind.dresidual ? &t[at.dresidual] : nullptr);
    t[at.dx] = out;
    if (kind.again) reference::rmsnorm_again(t[at.y], t[0], t[1], t[2]);
  };
  return made;
}

KernelCase rmsnorm_backward_weight_case(DType dtype, const Shape& x, DType gradient, bool accumulate, bool strided) {
  const auto gaps = row_gap(x.dims(), strided);
  KernelCase made = norm_case("rmsnorm_backward_weight", dtype, x, strided);
  made.operands = {{"x", x, dtype, Role::in, normal(3), gaps},
                   {"dweight", {x[-1]}, gradient, accumulate ? Role::inout : Role::out},
                   {"rstd", statistics_shape(x), accumulator_of(dtype)},
                   {"dy", x, dtype, Role::in, normal(), gaps}};
  made.shape += gradient_label(dtype, gradient, accumulate);
  made.run = [accumulate](Tensors t, Stream& stream) {
    rmsnorm_backward_weight({.dweight = t[1], .dy = t[3], .x = t[0], .rstd = t[2], .accumulate = accumulate}, stream);
  };
  made.prepare = [](Hosts t) {
    HostTensor y = t[0], ones(std::string(), {t[0].dim(-1)}, DType::f64);
    reference::rmsnorm_forward(y, t[2], t[0], ones, kNormEps);
  };
  made.reference = [accumulate](Hosts t) { reference::rmsnorm_backward_weight(t[1], t[3], t[0], t[2], accumulate); };
  return made;
}
}  // namespace

Cases rmsnorm_cases(DType dtype) {
  return norm_cases({rmsnorm_forward_case, rmsnorm_backward_input_case, rmsnorm_backward_weight_case}, dtype,
                    {{1, 1},
                     {7, 13},
                     {31, 257},
                     {3, 5000},
                     {5, 1000},
                     {3, 1600},
                     {3, 2056},
                     {65, 64},
                     {131, 7},
                     {1031, 20},
                     {515, 24},
                     {3, 5, 16},
                     {13, 7, 80}});
}

}  // namespace lockstep::tests
