#include "kernels/top_k.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

void select_top(const SelectTopArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::top_k, (a.residual ? 2 : 0) * a.x.elements(), {a.x, a.residual},
        {a.values, a.indices, a.residual});
}

// Of y only what is added to is touched.
void add_at(const AddAtArgs& a, lockstep::Stream& stream) {
  const std::int64_t touched = a.values.bytes();
  count(stream, {.kind = KernelKind::top_k, .flops = a.values.elements(), .read = touched, .written = touched},
        {a.indices, a.values}, {});
}

}  // namespace lockstep::meta
