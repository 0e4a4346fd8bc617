#include "kernels/block_codes.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

// Operations of an element: its share of a block's scale, the code, and what the code leaves over.
void encode_blocks(const EncodeBlocksArgs& a, lockstep::Stream& stream) {
  const std::int64_t each = (a.form == BlockForm::bf16 ? 1 : 3) + (a.residual ? 3 : 0);
  count(stream, KernelKind::elementwise, each * a.x.elements(), {a.x, a.residual}, {a.code, a.residual});
}

void decode_blocks(const DecodeBlocksArgs& a, lockstep::Stream& stream) {
  Kernel kernel{.kind = KernelKind::elementwise,
                .flops = (2 * static_cast<std::int64_t>(a.codes.size()) - 1) * a.y.elements()};
  for (const ConstTensor& code : a.codes) kernel.read += code.bytes();
  count(stream, kernel, {}, {a.y});
}

}  // namespace lockstep::meta
