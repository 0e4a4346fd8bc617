#include "kernels/rope.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void rope_table(const RopeTableArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::rope, 3 * a.cos.elements(), {a.positions}, {a.cos, a.sin});
}

void rope(const RopeArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::rope, 3 * a.x.elements(), {a.x, a.cos, a.sin, a.positions}, {a.x, a.amax});
}

}  // namespace lockstep::meta
