#include "kernels/operands.h"

namespace lockstep {

Operands& Operands::have(const char* name, const ConstTensor& t, const Shape& shape, DType dtype) {
  LOCKSTEP_CHECK(!t.none(), "{}: {} is missing", op_, name);
  LOCKSTEP_CHECK(t.shape() == shape, "{}: {} is {}, expected {}", op_, name, t.shape(), shape);
  LOCKSTEP_CHECK(t.dtype() == dtype, "{}: {} is {}, expected {}", op_, name, name_of(t.dtype()), name_of(dtype));
  LOCKSTEP_CHECK(t.device() == device_, "{}: {} is on {}, the stream on {}", op_, name, name_of(t.device()),
                 name_of(device_));
  LOCKSTEP_CHECK(t.dims() == 0 || t.dim(-1) <= 1 || t.stride(-1) == 1, "{}: the last dim of {} is not contiguous", op_,
                 name);
  return *this;
}

Operands& Operands::may_have(const char* name, const ConstTensor& t, const Shape& shape, DType dtype) {
  return t.none() ? *this : have(name, t, shape, dtype);
}

Operands& Operands::have_flat(const char* name, const ConstTensor& t, const Shape& shape, DType dtype) {
  have(name, t, shape, dtype);
  LOCKSTEP_CHECK(t.contiguous(), "{}: {} is not contiguous", op_, name);
  return *this;
}

Operands& Operands::floats(const char* name, const ConstTensor& t) {
  LOCKSTEP_CHECK(is_float(t.dtype()), "{}: {} is {}, expected a float type", op_, name, name_of(t.dtype()));
  return *this;
}

Operands& Operands::gradient(const char* name, const ConstTensor& t, const Shape& shape, DType activations) {
  LOCKSTEP_CHECK(t.dtype() == activations || t.dtype() == accumulator_of(activations),
                 "{}: {} is {} beside activations of {}", op_, name, name_of(t.dtype()), name_of(activations));
  return have(name, t, shape, t.dtype());
}

}  // namespace lockstep
