// How a matmul case is made; the speed table makes its own with it.
#pragma once
#include "support/cases/families.h"

namespace lockstep::tests {

struct MatmulCase {
  std::int64_t m, n, k;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;
  bool accumulate = false;
  bool strided = false;
  bool addend = false;
  DType c;  // of the output
};

KernelCase make_matmul(DType dtype, const MatmulCase& spec);

}  // namespace lockstep::tests
