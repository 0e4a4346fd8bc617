#include "support/cases/norm_cases.h"

namespace lockstep::tests {

Shape statistics_shape(const Shape& x) { return x.dims() == 2 ? Shape{x[0]} : Shape{x[0], x[1]}; }

KernelCase norm_case(const std::string& op, DType dtype, const Shape& x, bool strided) {
  const std::string extents = x.dims() == 2 ? label({x[0], x[1]}) : label({x[0], x[1], x[2]});
  return {.op = op, .shape = extents + (strided ? "_strided" : ""), .dtype = dtype};
}

void add_residual(KernelCase& forward, const Shape& x, bool strided) {
  const auto gaps = row_gap(x.dims(), strided);
  forward.shape += "_residual";
  forward.operands.push_back({"residual", x, forward.dtype, Role::in, normal(), gaps});
  forward.operands.push_back({"sum", x, forward.dtype, Role::out, normal(), gaps});
}

BackwardInputOperands add_gradients(KernelCase& backward_input, const Shape& x, const BackwardInputKind& kind,
                                    bool strided) {
  std::vector<Operand>& operands = backward_input.operands;
  const auto add = [&](const char* name, Role role) {
    operands.push_back({name, x, backward_input.dtype, role, normal(), row_gap(x.dims(), strided)});
    return static_cast<int>(operands.size()) - 1;
  };
  BackwardInputOperands at{-1, -1, -1, -1};
  at.dy = add("dy", kind.into == Into::dy ? Role::inout : Role::in);
  if (kind.dresidual) at.dresidual = add("dresidual", kind.into == Into::dresidual ? Role::inout : Role::in);
  at.dx = kind.into == Into::dy ? at.dy : kind.into == Into::dresidual ? at.dresidual : add("dx", Role::out);
  if (kind.again) at.y = add("y", Role::out);
  backward_input.shape += kind.dresidual ? "_dresidual" : "";
  backward_input.shape += kind.into == Into::dy ? "_into_dy" : kind.into == Into::dresidual ? "_into_dresidual" : "";
  backward_input.shape += kind.again ? "_y" : "";
  backward_input.plain = kind.into == Into::own;
  return at;
}

Cases norm_cases(const NormKernels& kernels, DType dtype, const std::vector<Shape>& shapes) {
  Cases cases;
  for (const Shape& x : shapes)
    for (const bool strided : {false, true}) {
      for (const bool residual : {false, true}) cases.push_back(kernels.forward(dtype, x, residual, strided));
      for (const BackwardInputKind& kind : {BackwardInputKind{},
                                            {.dresidual = true},
                                            {.dresidual = strided, .into = Into::dy},
                                            {.dresidual = true, .into = Into::dresidual},
                                            {.dresidual = true, .again = true},
                                            {.into = Into::dy, .again = true}})
        cases.push_back(kernels.backward_input(dtype, x, kind, strided));
      for (const DType gradient : gradient_types(dtype))
        for (const bool accumulate : {false, true})
          cases.push_back(kernels.backward_weight(dtype, x, gradient, accumulate, strided));
    }
  return cases;
}

}  // namespace lockstep::tests
