#include "kernels/optimizers.h"

#include "kernels/operands.h"
#include "kernels/step_control.h"

namespace lockstep {

namespace {
// What both optimizers share: the master decides length and type.
template <class Args>
void check_update(const char* op, Operands operands, const Args& a) {
  const std::int64_t n = a.master.elements();
  LOCKSTEP_CHECK(a.master.dtype() == DType::f64 || a.master.dtype() == DType::f32 ||
                     (a.master.dtype() == DType::bf16 && !a.weight),
                 "{}: master is {}{}", op, name_of(a.master.dtype()), a.weight ? ", beside a copy that computes" : "");
  operands.have_flat("master", a.master, {n}, a.master.dtype())
      .floats("gradient", a.gradient)
      .have_flat("gradient", a.gradient, {n}, a.gradient.dtype())
      .have_flat("control", a.control, {kStepControls}, DType::f64);
  // Beside a master of fp64 everything is fp64, beside others nothing is.
  for (const DType other : {a.gradient.dtype(), a.weight ? a.weight.dtype() : a.master.dtype()})
    LOCKSTEP_CHECK((other == DType::f64) == (a.master.dtype() == DType::f64), "{}: {} beside a master of {}", op,
                   name_of(other), name_of(a.master.dtype()));
  if (a.weight) operands.floats("weight", a.weight).have_flat("weight", a.weight, {n}, a.weight.dtype());
  LOCKSTEP_CHECK(a.decayed >= 0 && a.decayed <= n, "{}: {} decayed elements of {}", op, a.decayed, n);
  LOCKSTEP_CHECK(a.first >= 0, "{}: its first element is number {}", op, a.first);
}

// A moment: of the type in which is computed, or bf16 beside fp32.
void check_moment(Operands& operands, const char* name, const Tensor& moment, const Tensor& master) {
  const DType full = accumulator_of(master.dtype());
  const bool narrow = moment.dtype() == DType::bf16 && full == DType::f32;
  operands.have_flat(name, moment, master.shape(), narrow ? DType::bf16 : full);
}

// What is rounded by chance is of known tensors.
template <class Args>
void check_rounding(const char* op, const Args& a, const Tensor& moment) {
  const bool rounds = a.master.dtype() == DType::bf16 || (moment && moment.dtype() == DType::bf16);
  LOCKSTEP_CHECK(!rounds || !a.rounding.empty(), "{}: bf16 state of unknown tensors", op);
}
}  // namespace

void adamw(const AdamWArgs& a, Stream& stream) {
  Operands operands("adamw", stream);
  check_update("adamw", operands, a);
  check_moment(operands, "m", a.m, a.master);
  check_moment(operands, "v", a.v, a.master);
  LOCKSTEP_CHECK(a.m.dtype() == a.v.dtype(), "adamw: m is {}, v is {}", name_of(a.m.dtype()), name_of(a.v.dtype()));
  check_rounding("adamw", a, a.m);
  dispatch(cpu::adamw, cuda::adamw, meta::adamw, a, stream);
}

void sgd(const SgdArgs& a, Stream& stream) {
  Operands operands("sgd", stream);
  check_update("sgd", operands, a);
  if (a.momentum) check_moment(operands, "momentum", a.momentum, a.master);
  check_rounding("sgd", a, a.momentum);
  dispatch(cpu::sgd, cuda::sgd, meta::sgd, a, stream);
}

}  // namespace lockstep
