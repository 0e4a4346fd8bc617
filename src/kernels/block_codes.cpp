#include "kernels/block_codes.h"

#include "kernels/operands.h"
#include "kernels/tree_sum.h"

namespace lockstep {

void encode_blocks(const EncodeBlocksArgs& a, Stream& stream) {
  const std::int64_t n = a.x.elements();
  Operands("encode_blocks", stream)
      .floats("x", a.x)
      .have_flat("x", a.x, {n}, a.x.dtype())
      .have_flat("code", a.code, {coded_words(a.form, n)}, DType::i32)
      .may_have("residual", a.residual, {n}, accumulator_of(a.x.dtype()));
  dispatch(cpu::encode_blocks, cuda::encode_blocks, meta::encode_blocks, a, stream);
}

void decode_blocks(const DecodeBlocksArgs& a, Stream& stream) {
  const std::int64_t n = a.y.elements();
  LOCKSTEP_CHECK(!a.codes.empty() && a.codes.size() <= kMostSummands, "decode_blocks: {} codes, at most {}",
                 a.codes.size(), kMostSummands);
  check_joins("decode_blocks", a.joins, a.codes.size());
  Operands operands("decode_blocks", stream);
  operands.floats("y", a.y).have_flat("y", a.y, {n}, a.y.dtype());
  for (std::size_t i = 0; i < a.codes.size(); ++i)
    operands.have_flat(fmt::format("codes[{}]", i).c_str(), a.codes[i], {coded_words(a.form, n)}, DType::i32);
  dispatch(cpu::decode_blocks, cuda::decode_blocks, meta::decode_blocks, a, stream);
}

}  // namespace lockstep
