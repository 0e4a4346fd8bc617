#include "kernels/elementwise.h"

#include "kernels/bias.h"
#include "kernels/meta/count.h"
#include "kernels/random.h"

namespace lockstep::meta {

void add(const AddArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.y.elements(), {a.a, a.b}, {a.y});
}

void cast(const CastArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.y.elements(), {a.x}, {a.y});
}

void scale(const ScaleArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.y.elements(), {a.x}, {a.y});
}

void fill(const FillArgs& a, lockstep::Stream& stream) { count(stream, KernelKind::elementwise, 0, {}, {a.y}); }

void bias_backward(const BiasBackwardArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.dy.elements(), {a.dy, if_accumulating(a.accumulate, a.dbias)}, {a.dbias});
}

// Random numbers are integer work; what is counted is the arithmetic on elements.
void init_normal(const InitNormalArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.x.elements(), {}, {a.x});
}

void dropout(const DropoutArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.x.elements(), {a.x, a.positions}, {a.y});
}

}  // namespace lockstep::meta
