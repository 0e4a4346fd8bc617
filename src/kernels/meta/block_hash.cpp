#include "kernels/block_hash.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void block_hash(const BlockHashArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::sum, 0, {a.x}, {a.hash});
}

}  // namespace lockstep::meta
