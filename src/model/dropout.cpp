#include "model/dropout.h"

#include "base/philox.h"
#include "kernels/random.h"

namespace lockstep {

std::uint64_t DropoutSite::key(const Call& call) const { return random_key(call.batch.dropout_seed, name_); }

void DropoutSite::apply(Tensor y, ConstTensor x, const Call& call) const {
  lockstep::dropout({.y = y,
                     .x = x,
                     .positions = call.batch.positions,
                     .probability = probability_,
                     .key = key(call),
                     .first_sample = call.batch.first_sample},
                    call.stream);
}

}  // namespace lockstep
