#include "kernels/attention.h"

#include "kernels/cuda/attention/cudnn_attention_parts.h"
#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/operands.h"

namespace lockstep {

namespace {

struct Sizes {
  std::int64_t B, T, H, D, S, K;
};

Sizes check_sizes(const char* op, const ConstTensor& q, const ConstTensor& k, bool causal,
                  const AttentionDropout& dropout) {
  LOCKSTEP_CHECK(q.dims() == 4 && k.dims() == 4, "{}: q is {}, k is {}, expected 4 dims", op, q.shape(), k.shape());
  const Sizes s{q.dim(0), q.dim(1), q.dim(2), q.dim(3), k.dim(1), k.dim(2)};
  LOCKSTEP_CHECK(s.K > 0 && s.H % s.K == 0, "{}: {} query heads over {} key/value heads", op, s.H, s.K);
  LOCKSTEP_CHECK(s.D >= 1 && s.D <= kMaxHeadWidth, "{}: head width {}, at most {}", op, s.D, kMaxHeadWidth);
  LOCKSTEP_CHECK(s.S >= 1 && (!causal || s.S >= s.T), "{}: {} keys for {} queries", op, s.S, s.T);
  LOCKSTEP_CHECK(dropout.probability >= 0 && dropout.probability < 1, "{}: dropout {}", op, dropout.probability);
  return s;
}

void check_documents(Operands& operands, const DocumentMask& documents, const Sizes& s) {
  operands.may_have("starts", documents.starts, {s.B, s.T}, DType::i32);
}

}  // namespace

std::int64_t attention_workspace(Device device, const AttentionSizes& sizes) {
  if (device != Device::cuda) return 0;
  if (!cuda::why_not_hopper(sizes)) return cuda::hopper_reserve(sizes).total();
  if (cuda::why_not_cudnn(sizes)) return 0;
  return cuda::attention_reserve(sizes, cuda::attention_part(sizes)).total();
}

void attention_forward(const AttentionForwardArgs& a, Stream& stream) {
  const char* op = "attention_forward";
  const Sizes s = check_sizes(op, a.q, a.k, a.causal, a.dropout);
  const DType type = a.q.dtype();
  Operands operands(op, stream);
  check_documents(operands, a.documents, s);
  operands.floats("q", a.q)
      .have("q", a.q, {s.B, s.T, s.H, s.D}, type)
      .have("k", a.k, {s.B, s.S, s.K, s.D}, type)
      .have("v", a.v, {s.B, s.S, s.K, s.D}, type)
      .have("o", a.o, {s.B, s.T, s.H, s.D}, type)
      .have_flat("lse", a.lse, {s.B, s.H, s.T}, accumulator_of(type));
  dispatch(cpu::attention_forward, cuda::attention_forward, meta::attention_forward, a, stream);
}

void attention_backward(const AttentionBackwardArgs& a, Stream& stream) {
  const char* op = "attention_backward";
  const Sizes s = check_sizes(op, a.q, a.k, a.causal, a.dropout);
  const DType type = a.q.dtype();
  const Shape queries{s.B, s.T, s.H, s.D}, keys{s.B, s.S, s.K, s.D};
  Operands operands(op, stream);
  check_documents(operands, a.documents, s);
  operands.floats("q", a.q)
      .have("q", a.q, queries, type)
      .have("k", a.k, keys, type)
      .have("v", a.v, keys, type)
      .have("o", a.o, queries, type)
      .have("d_o", a.d_o, queries, type)
      .have("dq", a.dq, queries, type)
      .have("dk", a.dk, keys, type)
      .have("dv", a.dv, keys, type)
      .have_flat("lse", a.lse, {s.B, s.H, s.T}, accumulator_of(type));
  if (a.workspace) {
    LOCKSTEP_CHECK(a.workspace.dims() == 1, "{}: workspace is {}, expected 1 dim", op, a.workspace.shape());
    Operands(op, stream).have_flat("workspace", a.workspace, a.workspace.shape(), DType::f32);
  }
  dispatch(cpu::attention_backward, cuda::attention_backward, meta::attention_backward, a, stream);
}

}  // namespace lockstep
