#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/meta/count.h"

namespace lockstep::meta {

namespace {
// Pairs of query and key that see each other; half-hidden tiles are not counted as a kernel might compute them.
// Of documents, as many as are expected.
std::int64_t pairs(const ConstTensor& q, const ConstTensor& k, bool causal, const DocumentMask& documents) {
  if (documents.starts && documents.pairs >= 0)
    return std::llround(static_cast<double>(q.dim(0) * q.dim(2)) * documents.pairs);
  const std::int64_t T = q.dim(1), S = k.dim(1);
  const std::int64_t of_one_head = causal ? T * S - T * (T - 1) / 2 : T * S;
  return q.dim(0) * q.dim(2) * of_one_head;
}

// With documents, as if there were as many keys as make so many pairs.
std::int64_t keys(const ConstTensor& q, const ConstTensor& k, bool causal, const DocumentMask& documents) {
  if (!documents.starts || documents.pairs < 0 || q.dim(1) == 0) return k.dim(1);
  const double each = documents.pairs / static_cast<double>(q.dim(1));
  return std::clamp<std::int64_t>(std::llround(causal ? 2 * each : each), 1, k.dim(1));
}

Kernel attention(KernelKind kind, const ConstTensor& q, std::int64_t keys, std::int64_t flops) {
  return {.kind = kind,
          .dtype = q.dtype(),
          .head_width = static_cast<std::int32_t>(q.dim(3)),
          .m = q.dim(1),
          .n = q.dim(0) * q.dim(2),
          .k = keys,
          .flops = flops};
}
}  // namespace

void attention_forward(const AttentionForwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t flops = 4 * a.q.dim(3) * pairs(a.q, a.k, a.causal, a.documents);  // q kᵀ and p v
  const std::int64_t seen = keys(a.q, a.k, a.causal, a.documents);
  count(stream, attention(KernelKind::attention_forward, a.q, seen, flops), {a.q, a.k, a.v, a.documents.starts},
        {a.o, a.lse});
}

void attention_backward(const AttentionBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t flops = 10 * a.q.dim(3) * pairs(a.q, a.k, a.causal, a.documents);  // q kᵀ again, do vᵀ, dq, dk, dv
  const std::int64_t seen = keys(a.q, a.k, a.causal, a.documents);
  count(stream, attention(KernelKind::attention_backward, a.q, seen, flops),
        {a.q, a.k, a.v, a.o, a.d_o, a.lse, a.documents.starts}, {a.dq, a.dk, a.dv});
}

}  // namespace lockstep::meta
