#include "kernels/block_codes.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

namespace {

KernelKind kind_of(BlockForm form) {
  return form == BlockForm::bf16   ? KernelKind::code_bf16
         : form == BlockForm::int8 ? KernelKind::code_int8
                                   : KernelKind::code_onebit;
}

}  // namespace

// Operations of an element: its share of a block's scale, the code, and what the code leaves over.
void encode_blocks(const EncodeBlocksArgs& a, lockstep::Stream& stream) {
  const std::int64_t each = (a.form == BlockForm::bf16 ? 1 : 3) + (a.residual ? 3 : 0);
  count(stream, kind_of(a.form), each * a.x.elements(), {a.x, a.residual}, {a.code, a.residual});
}

void decode_blocks(const DecodeBlocksArgs& a, lockstep::Stream& stream) {
  Kernel kernel{.kind = kind_of(a.form), .flops = (2 * static_cast<std::int64_t>(a.codes.size()) - 1) * a.y.elements()};
  for (const ConstTensor& code : a.codes) kernel.read += code.bytes();
  count(stream, kernel, {}, {a.y});
}

}  // namespace lockstep::meta
