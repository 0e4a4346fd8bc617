#include "kernels/heads.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void copy_heads(const CopyHeadsArgs& a, lockstep::Stream& stream) {
  const bool moves = !a.accumulate && a.x.dtype() == a.y.dtype();  // as it is, with no arithmetic
  count(stream, KernelKind::elementwise, moves ? 0 : a.y.elements(), {a.x, if_accumulating(a.accumulate, a.y)}, {a.y});
}

}  // namespace lockstep::meta
