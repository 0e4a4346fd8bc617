#include "kernels/cross_entropy.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void cross_entropy(const CrossEntropyArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::cross_entropy, (a.dlogits ? 7 : 4) * a.logits.elements(), {a.logits, a.targets, a.scale},
        {a.losses, a.dlogits, a.likeliest});
}

}  // namespace lockstep::meta
