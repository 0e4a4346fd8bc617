#include "model/dropout.h"

#include "base/philox.h"
#include "kernels/random.h"

namespace lockstep {

std::uint64_t DropoutSite::key(const Call& call) const { return random_key(call.batch.dropout_seed, name_); }

void DropoutSite::apply(Tensor y, ConstTensor x, const Call& call) const {
  const TensorSplit split = call.split();
  const std::int64_t rows = call.batch.tokens.elements(), pieces = split.sequence ? split.pieces_of(rows) : 1;
  for (std::int64_t c = 0; c < pieces; ++c) {
    const TensorSplit::RowPiece piece = split.sequence ? split.piece(rows, c) : TensorSplit{}.piece(x.dim(0), 0);
    lockstep::dropout({.y = y.slice(0, piece.own_first, piece.own_count),
                       .x = x.slice(0, piece.own_first, piece.own_count),
                       .positions = call.batch.positions,
                       .probability = probability_,
                       .key = key(call),
                       .first_sample = call.batch.first_sample,
                       .first_row = piece.mine},
                      call.stream);
  }
}

}  // namespace lockstep
