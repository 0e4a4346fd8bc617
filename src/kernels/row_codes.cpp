#include "kernels/row_codes.h"

#include "kernels/operands.h"

namespace lockstep {

namespace {

void check_row(const char* op, const RowCode& form, std::int64_t C) {
  LOCKSTEP_CHECK(form.largest == 0 || (form.largest > 0 && form.largest <= C && C <= kMostPlaces),
                 "{}: the {} largest of {} elements", op, form.largest, C);
}

}  // namespace

void encode_rows(const EncodeRowsArgs& a, Stream& stream) {
  const std::int64_t N = a.x.dims() == 2 ? a.x.dim(0) : 0, C = a.x.dims() == 2 ? a.x.dim(1) : 0;
  Operands("encode_rows", stream)
      .floats("x", a.x)
      .have_flat("x", a.x, {N, C}, a.x.dtype())
      .have_flat("code", a.code, {N, row_words(a.form, C, a.x.dtype())}, DType::i32);
  check_row("encode_rows", a.form, C);
  dispatch(cpu::encode_rows, cuda::encode_rows, meta::encode_rows, a, stream);
}

void decode_rows(const DecodeRowsArgs& a, Stream& stream) {
  const std::int64_t N = a.y.dims() == 2 ? a.y.dim(0) : 0, C = a.y.dims() == 2 ? a.y.dim(1) : 0;
  Operands("decode_rows", stream)
      .floats("y", a.y)
      .have_flat("y", a.y, {N, C}, a.y.dtype())
      .have_flat("code", a.code, {N, row_words(a.form, C, a.y.dtype())}, DType::i32);
  check_row("decode_rows", a.form, C);
  dispatch(cpu::decode_rows, cuda::decode_rows, meta::decode_rows, a, stream);
}

}  // namespace lockstep
