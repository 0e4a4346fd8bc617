// What the cases of every norm have in common.
#pragma once
#include "support/cases/families.h"

namespace lockstep::tests {

inline constexpr double kNormEps = 1e-5;

// The shape of a norm's statistics: one element for each row of x.
Shape statistics_shape(const Shape& x);

// A case over x that has no operands yet.
KernelCase norm_case(const std::string& op, DType dtype, const Shape& x, bool strided);

// The last operands of a forward, if it adds a residual: residual, sum.
void add_residual(KernelCase& forward, const Shape& x, bool strided);

enum class Into { own, dy, dresidual };  // where dx goes

struct BackwardInputKind {
  bool dresidual = false;
  Into into = Into::own;
  bool again = false;  // the output is wanted too
};

// Where an operand of a backward_input is, of those that it may have.
struct BackwardInputOperands {
  int dy, dresidual, dx, y;
};

// The last operands of a backward_input: dy, dresidual, dx, y.
BackwardInputOperands add_gradients(KernelCase& backward_input, const Shape& x, const BackwardInputKind& kind,
                                    bool strided);

struct NormKernels {
  KernelCase (*forward)(DType dtype, const Shape& x, bool residual, bool strided);
  KernelCase (*backward_input)(DType dtype, const Shape& x, const BackwardInputKind& kind, bool strided);
  KernelCase (*backward_weight)(DType dtype, const Shape& x, DType gradient, bool accumulate, bool strided);
};
Cases norm_cases(const NormKernels& kernels, DType dtype, const std::vector<Shape>& shapes);

}  // namespace lockstep::tests
