#include "kernels/matmul.h"

#include "kernels/operands.h"

namespace lockstep {

namespace {

void check_fp8(const MatmulArgs& a, std::int64_t m, std::int64_t n, std::int64_t k, Stream& stream) {
  LOCKSTEP_CHECK(
      is_fp8(a.a.dtype()) && is_fp8(a.b.dtype()) && (a.a.dtype() == DType::f8e4m3 || a.b.dtype() == DType::f8e4m3),
      "matmul: a is {}, b is {}", name_of(a.a.dtype()), name_of(a.b.dtype()));
  LOCKSTEP_CHECK(!a.transpose_a && a.transpose_b, "matmul: fp8 operands not along K");
  LOCKSTEP_CHECK(m % 16 == 0 && n % 16 == 0 && k % 16 == 0 && a.a.stride(0) % 16 == 0 && a.b.stride(0) % 16 == 0,
                 "matmul: fp8 operands of {} x {} x {}", m, n, k);
  LOCKSTEP_CHECK(begins_at(16, a.a) && begins_at(16, a.b), "matmul: fp8 operands not at multiples of 16 bytes");
  Operands("matmul", stream)
      .have("a", a.a, {m, k}, a.a.dtype())
      .have("b", a.b, {n, k}, a.b.dtype())
      .have("scale_a", a.scale_a, {1}, DType::f32)
      .have("scale_b", a.scale_b, {1}, DType::f32)
      .gradient("c", a.c, {m, n}, DType::bf16)
      .may_have("bias", a.bias, {n}, DType::bf16)
      .may_have("addend", a.addend, {m, n}, a.c.dtype());
}

void check_floats(const MatmulArgs& a, std::int64_t m, std::int64_t n, std::int64_t k, Stream& stream) {
  const DType type = a.a.dtype();
  Operands("matmul", stream)
      .floats("a", a.a)
      .have("a", a.a, a.transpose_a ? Shape{k, m} : Shape{m, k}, type)
      .have("b", a.b, a.transpose_b ? Shape{n, k} : Shape{k, n}, type)
      .gradient("c", a.c, {m, n}, type)
      .may_have("bias", a.bias, {n}, type)
      .may_have("addend", a.addend, {m, n}, a.c.dtype());
  LOCKSTEP_CHECK(!a.scale_a && !a.scale_b && !a.fast_sums, "matmul: scales or fast sums of {}", name_of(type));
}

}  // namespace

void matmul(const MatmulArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.a.dims() == 2 && a.b.dims() == 2 && a.c.dims() == 2, "matmul: a is {}, b is {}, c is {}",
                 a.a.shape(), a.b.shape(), a.c.shape());
  const std::int64_t m = a.c.dim(0), n = a.c.dim(1), k = a.a.dim(a.transpose_a ? 0 : 1);
  if (is_fp8(a.a.dtype()) || is_fp8(a.b.dtype()))
    check_fp8(a, m, n, k, stream);
  else
    check_floats(a, m, n, k, stream);
  LOCKSTEP_CHECK(!a.addend || !a.accumulate, "matmul: an addend and what c holds already");
  dispatch(cpu::matmul, cuda::matmul, meta::matmul, a, stream);
}

}  // namespace lockstep
