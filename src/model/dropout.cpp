#include "model/dropout.h"

#include "base/philox.h"
#include "kernels/random.h"

namespace lockstep {

std::uint64_t DropoutSite::key(const Call& call) const { return random_key(call.batch.dropout_seed, name_); }

void DropoutSite::apply(Tensor y, ConstTensor x, const Call& call) const {
  const TensorSplit split = call.split();
  const std::int64_t rows = call.batch.tokens.elements(), chunks = split.sequence ? split.chunks_of(rows) : 1;
  const std::int64_t each = x.dim(0) / chunks;
  for (std::int64_t c = 0; c < chunks; ++c)
    lockstep::dropout({.y = y.slice(0, c * each, each),
                       .x = x.slice(0, c * each, each),
                       .positions = call.batch.positions,
                       .probability = probability_,
                       .key = key(call),
                       .first_sample = call.batch.first_sample,
                       .first_row = split.sequence ? split.first_row(rows, c) : 0},
                      call.stream);
}

}  // namespace lockstep
