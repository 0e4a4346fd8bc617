#include "kernels/layernorm.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
constexpr double kEps = 1e-5;
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

// Rows lie away from zero: a variance taken as a difference of squares would show.
Recipe rows_off_zero() { return normal(2, 5); }

std::string shape_label(const Shape& x, bool strided) { return label({x[0], x[1]}) + (strided ? "_strided" : ""); }

// mean (index 2) and rstd (3) of x (0), for the backward cases.
void prepare_statistics(Hosts t) {
  HostTensor y = t[0], vector(std::string(), {t[0].dim(-1)}, DType::f64);
  reference::layernorm_forward(y, t[2], t[3], t[0], vector, vector, kEps);
}

KernelCase forward(DType dtype, const Shape& x, bool residual, bool strided) {
  const auto gaps = row_gap(2, strided);
  KernelCase made{.op = "layernorm_forward", .shape = shape_label(x, strided), .dtype = dtype};
  made.operands = {
      {"y", x, dtype, Role::out, normal(), gaps},          {"mean", {x[0]}, accumulator_of(dtype), Role::out},
      {"rstd", {x[0]}, accumulator_of(dtype), Role::out},  {"x", x, dtype, Role::in, rows_off_zero(), gaps},
      {"weight", {x[1]}, dtype, Role::in, normal(0.5, 1)}, {"bias", {x[1]}, dtype, Role::in}};
  if (residual) {
    made.shape += "_residual";
    made.operands.push_back({"residual", x, dtype, Role::in, normal(), gaps});
    made.operands.push_back({"sum", x, dtype, Role::out, normal(), gaps});
  }
  made.run = [residual](Tensors t, Stream& stream) {
    layernorm_forward({.y = t[0],
                       .mean = t[1],
                       .rstd = t[2],
                       .x = t[3],
                       .weight = t[4],
                       .bias = t[5],
                       .eps = kEps,
                       .residual = residual ? t[6] : Tensor(),
                       .sum = residual ? t[7] : Tensor()},
                      stream);
  };
  made.reference = [residual](Hosts t) {
    reference::layernorm_forward(t[0], t[1], t[2], t[3], t[4], t[5], kEps, residual ? &t[6] : nullptr,
                                 residual ? &t[7] : nullptr);
  };
  return made;
}

enum class Into { own, dy, dresidual };  // where dx goes

// Operands: x, weight, mean, rstd, dy, dresidual, dx; then y and bias, if the output is wanted again.
KernelCase backward_input(DType dtype, const Shape& x, bool dresidual, Into into, bool strided, bool again = false) {
  const auto gaps = row_gap(2, strided);
  KernelCase made{.op = "layernorm_backward_input", .shape = shape_label(x, strided), .dtype = dtype};
  made.operands = {{"x", x, dtype, Role::in, rows_off_zero(), gaps},
                   {"weight", {x[1]}, dtype, Role::in, normal(0.5, 1)},
                   {"mean", {x[0]}, accumulator_of(dtype)},
                   {"rstd", {x[0]}, accumulator_of(dtype)},
                   {"dy", x, dtype, into == Into::dy ? Role::inout : Role::in, normal(), gaps}};
  if (dresidual)
    made.operands.push_back({"dresidual", x, dtype, into == Into::dresidual ? Role::inout : Role::in, normal(), gaps});
  const int dx = into == Into::dy ? 4 : into == Into::dresidual ? 5 : static_cast<int>(made.operands.size());
  if (into == Into::own) made.operands.push_back({"dx", x, dtype, Role::out, normal(), gaps});
  made.shape += std::string(dresidual ? "_dresidual" : "") + (into == Into::dy          ? "_into_dy"
                                                              : into == Into::dresidual ? "_into_dresidual"
                                                                                        : "");
  const int y = static_cast<int>(made.operands.size());
  if (again) {
    made.shape += "_y";
    made.operands.push_back({"y", x, dtype, Role::out, normal(), gaps});
    made.operands.push_back({"bias", {x[1]}, dtype, Role::in});
  }
  made.plain = into == Into::own;
  made.run = [=](Tensors t, Stream& stream) {
    layernorm_backward_input({.dx = t[dx],
                              .dy = t[4],
                              .x = t[0],
                              .weight = t[1],
                              .mean = t[2],
                              .rstd = t[3],
                              .dresidual = dresidual ? t[5] : Tensor(),
                              .y = again ? t[y] : Tensor(),
                              .bias = again ? t[y + 1] : Tensor()},
                             stream);
  };
  made.prepare = prepare_statistics;
  made.reference = [=](Hosts t) {
    HostTensor out = t[dx];
    reference::layernorm_backward_input(out, t[4], t[0], t[1], t[2], t[3], dresidual ? &t[5] : nullptr);
    t[dx] = out;
    if (again) reference::layernorm_again(t[y], t[0], t[1], t[y + 1], t[2], t[3]);
  };
  return made;
}

KernelCase backward_weight(DType dtype, const Shape& x, DType gradient, bool accumulate, bool strided) {
  const auto gaps = row_gap(2, strided);
  const Role role = accumulate ? Role::inout : Role::out;
  KernelCase made{.op = "layernorm_backward_weight", .shape = shape_label(x, strided), .dtype = dtype};
  made.operands = {{"x", x, dtype, Role::in, rows_off_zero(), gaps}, {"dweight", {x[1]}, gradient, role},
                   {"mean", {x[0]}, accumulator_of(dtype)},          {"rstd", {x[0]}, accumulator_of(dtype)},
                   {"dy", x, dtype, Role::in, normal(), gaps},       {"dbias", {x[1]}, gradient, role}};
  made.shape += (accumulate ? "_accumulate" : "") + (gradient == dtype ? "" : "_to_" + std::string(name_of(gradient)));
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
  Cases cases;
  for (const Shape& x : {Shape{1, 1}, Shape{7, 13}, Shape{31, 257}, Shape{3, 5000}, Shape{5, 1000}, Shape{3, 1600},
                         Shape{3, 2056}, Shape{65, 64}, Shape{1031, 20}})
    for (const bool strided : {false, true}) {
      cases.push_back(forward(dtype, x, false, strided));
      cases.push_back(forward(dtype, x, true, strided));
      cases.push_back(backward_input(dtype, x, false, Into::own, strided));
      cases.push_back(backward_input(dtype, x, true, Into::own, strided));
      cases.push_back(backward_input(dtype, x, strided, Into::dy, strided));
      cases.push_back(backward_input(dtype, x, true, Into::dresidual, strided));
      cases.push_back(backward_input(dtype, x, true, Into::own, strided, true));
      cases.push_back(backward_input(dtype, x, false, Into::dy, strided, true));
      for (const DType gradient : gradient_types(dtype))
        for (const bool accumulate : {false, true})
          cases.push_back(backward_weight(dtype, x, gradient, accumulate, strided));
    }
  return cases;
}

}  // namespace lockstep::tests
