#include "kernels/block_hash.h"

#include "kernels/operands.h"

namespace lockstep {

void block_hash(const BlockHashArgs& a, Stream& stream) {
  Operands("block_hash", stream)
      .have_flat("hash", a.hash, {kBlockHashWords}, DType::i64)
      .floats("x", a.x)
      .have_flat("x", a.x, {a.x.elements()}, a.x.dtype());
  dispatch(cpu::block_hash, cuda::block_hash, meta::block_hash, a, stream);
}

}  // namespace lockstep
