// Where the CUDA toolkit is, but not cuDNN's headers: 16-bit attention of real sizes says what is missing, since the
// plain kernel would hide it as a run ten times as slow.
#include "kernels/cuda/attention/cudnn_attention.h"

namespace lockstep::cuda {

namespace {
template <class Args>
std::string refuse(const Args& a) {
  const char* reason = why_not_cudnn({.B = a.q.dim(0),
                                      .T = a.q.dim(1),
                                      .S = a.k.dim(1),
                                      .H = a.q.dim(2),
                                      .K = a.k.dim(2),
                                      .D = a.q.dim(3),
                                      .dtype = a.q.dtype(),
                                      .causal = a.causal,
                                      .dropout = a.dropout.probability > 0,
                                      .documents = bool(a.documents.starts)});
  if (reason) return reason;
  throw EnvironmentError(
      "this program was built without cuDNN, which 16-bit attention on a GPU needs; build it where cuDNN 9's headers "
      "are, or compute in fp32");
}
}  // namespace

std::string cudnn_attention_forward(const AttentionForwardArgs& a, lockstep::Stream&) { return refuse(a); }
std::string cudnn_attention_backward(const AttentionBackwardArgs& a, lockstep::Stream&, std::int64_t) {
  return refuse(a);
}

}  // namespace lockstep::cuda
