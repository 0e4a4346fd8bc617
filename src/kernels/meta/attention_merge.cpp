#include "kernels/attention_merge.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

// Two products and a sum for each element; the weights, one pair for D elements, are not counted.
void attention_merge(const AttentionMergeArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, a.first ? 0 : 3 * a.o.elements(),
        {a.part, a.part_lse, if_accumulating(!a.first, a.o), if_accumulating(!a.first, a.lse)}, {a.o, a.lse});
}

}  // namespace lockstep::meta
