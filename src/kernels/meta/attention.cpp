#include "kernels/attention.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

namespace {
// Pairs of query and key that see each other; half-hidden tiles are not counted as a kernel might compute them.
std::int64_t pairs(const ConstTensor& q, const ConstTensor& k, bool causal) {
  const std::int64_t T = q.dim(1), S = k.dim(1);
  const std::int64_t of_one_head = causal ? T * S - T * (T - 1) / 2 : T * S;
  return q.dim(0) * q.dim(2) * of_one_head;
}

Kernel attention(KernelKind kind, const ConstTensor& q, const ConstTensor& k, std::int64_t flops) {
  return {.kind = kind,
          .dtype = q.dtype(),
          .head_width = static_cast<std::int32_t>(q.dim(3)),
          .m = q.dim(1),
          .n = q.dim(0) * q.dim(2),
          .k = k.dim(1),
          .flops = flops};
}
}  // namespace

void attention_forward(const AttentionForwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t flops = 4 * a.q.dim(3) * pairs(a.q, a.k, a.causal);  // q kᵀ and p v
  count(stream, attention(KernelKind::attention_forward, a.q, a.k, flops), {a.q, a.k, a.v}, {a.o, a.lse});
}

void attention_backward(const AttentionBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t flops = 10 * a.q.dim(3) * pairs(a.q, a.k, a.causal);  // q kᵀ again, do vᵀ, dq, dk, dv
  count(stream, attention(KernelKind::attention_backward, a.q, a.k, flops), {a.q, a.k, a.v, a.o, a.d_o, a.lse},
        {a.dq, a.dk, a.dv});
}

}  // namespace lockstep::meta
