#include "kernels/rmsnorm.h"
#include "support/cases/families.h"
#include "support/reference_ops.h"

namespace lockstep::tests {

namespace {
constexpr double kEps = 1e-5;
using Tensors = std::span<const Tensor>;
using Hosts = std::span<HostTensor>;

Shape leading(const Shape& x) { return x.dims() == 2 ? Shape{x[0]} : Shape{x[0], x[1]}; }

std::string shape_label(const Shape& x, bool strided) {
  return (x.dims() == 2 ? label({x[0], x[1]}) : label({x[0], x[1], x[2]})) + (strided ? "_strided" : "");
}

KernelCase forward(DType dtype, const Shape& x, bool residual, bool strided) {
  const auto gaps = row_gap(x.dims(), strided);
  KernelCase made{.op = "rmsnorm_forward", .shape = shape_label(x, strided), .dtype = dtype};
  made.operands = {{"y", x, dtype, Role::out, normal(), gaps},
                   {"rstd", leading(x), accumulator_of(dtype), Role::out},
                   {"x", x, dtype, Role::in, normal(3), gaps},
                   {"weight", {x[-1]}, dtype, Role::in, normal(0.5, 1)}};
  if (residual) {
    made.shape += "_residual";
    made.operands.push_back({"residual", x, dtype, Role::in, normal(), gaps});
    made.operands.push_back({"sum", x, dtype, Role::out, normal(), gaps});
  }
  made.run = [residual](Tensors t, Stream& stream) {
    rmsnorm_forward({.y = t[0],
                     .rstd = t[1],
                     .x = t[2],
                     .weight = t[3],
                     .eps = kEps,
                     .residual = residual ? t[4] : Tensor(),
                     .sum = residual ? t[5] : Tensor()},
                    stream);
  };
  made.reference = [residual](Hosts t) {
    reference::rmsnorm_forward(t[0], t[1], t[2], t[3], kEps, residual ? &t[4] : nullptr, residual ? &t[5] : nullptr);
  };
  return made;
}

enum class Into { own, dy, dresidual };  // where dx goes

// Operands: x, weight, rstd, dy, dresidual, dx; the one that dx goes into is left out of the list's end. Then y, if the
// output is wanted again.
KernelCase backward_input(DType dtype, const Shape& x, bool dresidual, Into into, bool strided, bool again = false) {
  const auto gaps = row_gap(x.dims(), strided);
  KernelCase made{.op = "rmsnorm_backward_input", .shape = shape_label(x, strided), .dtype = dtype};
  made.operands = {{"x", x, dtype, Role::in, normal(3), gaps},
                   {"weight", {x[-1]}, dtype, Role::in, normal(0.5, 1)},
                   {"rstd", leading(x), accumulator_of(dtype)},
                   {"dy", x, dtype, into == Into::dy ? Role::inout : Role::in, normal(), gaps}};
  if (dresidual)
    made.operands.push_back({"dresidual", x, dtype, into == Into::dresidual ? Role::inout : Role::in, normal(), gaps});
  const int dx = into == Into::dy ? 3 : into == Into::dresidual ? 4 : static_cast<int>(made.operands.size());
  if (into == Into::own) made.operands.push_back({"dx", x, dtype, Role::out, normal(), gaps});
  made.shape += std::string(dresidual ? "_dresidual" : "") + (into == Into::dy          ? "_into_dy"
                                                              : into == Into::dresidual ? "_into_dresidual"
                                                                                        : "");
  const int y = static_cast<int>(made.operands.size());
  if (again) {
    made.shape += "_y";
    made.operands.push_back({"y", x, dtype, Role::out, normal(), gaps});
  }
  made.plain = into == Into::own;
  made.run = [=](Tensors t, Stream& stream) {
    rmsnorm_backward_input({.dx = t[dx],
                            .dy = t[3],
                            .x = t[0],
                            .weight = t[1],
                            .rstd = t[2],
                            .dresidual = dresidual ? t[4] : Tensor(),
                            .y = again ? t[y] : Tensor()},
                           stream);
  };
  made.prepare = [](Hosts t) {
    HostTensor y = t[0];
    reference::rmsnorm_forward(y, t[2], t[0], t[1], kEps);
  };
  made.reference = [=](Hosts t) {
    HostTensor out = t[dx];
    reference::rmsnorm_backward_input(out, t[3], t[0], t[1], t[2], dresidual ? &t[4] : nullptr);
    t[dx] = out;
    if (again) reference::rmsnorm_again(t[y], t[0], t[1], t[2]);
  };
  return made;
}

KernelCase backward_weight(DType dtype, const Shape& x, DType gradient, bool accumulate, bool strided) {
  const auto gaps = row_gap(x.dims(), strided);
  KernelCase made{.op = "rmsnorm_backward_weight", .shape = shape_label(x, strided), .dtype = dtype};
  made.operands = {{"x", x, dtype, Role::in, normal(3), gaps},
                   {"dweight", {x[-1]}, gradient, accumulate ? Role::inout : Role::out},
                   {"rstd", leading(x), accumulator_of(dtype)},
                   {"dy", x, dtype, Role::in, normal(), gaps}};
  made.shape += (accumulate ? "_accumulate" : "") + (gradient == dtype ? "" : "_to_" + std::string(name_of(gradient)));
  made.run = [accumulate](Tensors t, Stream& stream) {
    rmsnorm_backward_weight({.dweight = t[1], .dy = t[3], .x = t[0], .rstd = t[2], .accumulate = accumulate}, stream);
  };
  made.prepare = [](Hosts t) {
    HostTensor y = t[0], ones(std::string(), {t[0].dim(-1)}, DType::f64);
    reference::rmsnorm_forward(y, t[2], t[0], ones, kEps);
  };
  made.reference = [accumulate](Hosts t) { reference::rmsnorm_backward_weight(t[1], t[3], t[0], t[2], accumulate); };
  return made;
}
}  // namespace

Cases rmsnorm_cases(DType dtype) {
  Cases cases;
  const std::vector<Shape> shapes = {{1, 1},   {7, 13},  {31, 257},  {3, 5000}, {5, 1000},  {3, 1600},  {3, 2056},
                                     {65, 64}, {131, 7}, {1031, 20}, {515, 24}, {3, 5, 16}, {13, 7, 80}};
  for (const Shape& x : shapes)
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
