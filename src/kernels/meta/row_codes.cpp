#include "kernels/row_codes.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

// Operations of an element as in block_codes.cpp; choosing the largest compares.
void encode_rows(const EncodeRowsArgs& a, lockstep::Stream& stream) {
  const std::int64_t each = a.form.largest > 0 ? 0 : a.form.blocks == BlockForm::bf16 ? 1 : 3;
  count(stream, KernelKind::elementwise, each * a.x.elements(), {a.x}, {a.code});
}

void decode_rows(const DecodeRowsArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.form.largest > 0 ? 0 : a.y.elements(), {a.code}, {a.y});
}

}  // namespace lockstep::meta
