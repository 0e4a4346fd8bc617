// The kernels' contracts once more, as plain loops in double: what every device is compared with.
//
// Written from the headers of src/kernels/ alone. Outputs get values and the magnitude of their terms (host_tensor.h);
// an operand that may be absent is a pointer. Inputs hold what the real operand holds, rounded to its type.
#pragma once
#include <optional>
#include <span>

#include "kernels/rope.h"
#include "support/host_tensor.h"

namespace lockstep::tests::reference {

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};
void matmul(HostTensor& c, const HostTensor& a, const HostTensor& b, const HostTensor* bias, MatmulOptions options);

// x of 2 or 3 dims; with a residual, `sum` is written and what it holds once rounded is normalised.
void rmsnorm_forward(HostTensor& y, HostTensor& rstd, const HostTensor& x, const HostTensor& weight, double eps,
                     const HostTensor* residual = nullptr, HostTensor* sum = nullptr);
void rmsnorm_backward_input(HostTensor& dx, const HostTensor& dy, const HostTensor& x, const HostTensor& weight,
                            const HostTensor& rstd, const HostTensor* dresidual);
void rmsnorm_backward_weight(HostTensor& dweight, const HostTensor& dy, const HostTensor& x, const HostTensor& rstd,
                             bool accumulate);

// The output again, from the row's statistics.
void rmsnorm_again(HostTensor& y, const HostTensor& x, const HostTensor& weight, const HostTensor& rstd);
void layernorm_again(HostTensor& y, const HostTensor& x, const HostTensor& weight, const HostTensor& bias,
                     const HostTensor& mean, const HostTensor& rstd);

void layernorm_forward(HostTensor& y, HostTensor& mean, HostTensor& rstd, const HostTensor& x, const HostTensor& weight,
                       const HostTensor& bias, double eps, const HostTensor* residual = nullptr,
                       HostTensor* sum = nullptr);
void layernorm_backward_input(HostTensor& dx, const HostTensor& dy, const HostTensor& x, const HostTensor& weight,
                              const HostTensor& mean, const HostTensor& rstd, const HostTensor* dresidual);
void layernorm_backward_weight(HostTensor& dweight, HostTensor& dbias, const HostTensor& dy, const HostTensor& x,
                               const HostTensor& mean, const HostTensor& rstd, bool accumulate);

void swiglu_forward(HostTensor& y, const HostTensor& gate_up);
void swiglu_backward(HostTensor& d_gate_up, const HostTensor& dy, const HostTensor& gate_up);
void gelu_forward(HostTensor& y, const HostTensor& x);
void gelu_backward(HostTensor& dx, const HostTensor& dy, const HostTensor& x);
void bias_backward(HostTensor& dbias, const HostTensor& dy, bool accumulate);
void add(HostTensor& y, const HostTensor& a, const HostTensor& b);
void copy_heads(HostTensor& y, const HostTensor& x, bool accumulate);

// dlogits may be none.
void cross_entropy(HostTensor& losses, HostTensor* dlogits, const HostTensor& logits, const HostTensor& targets,
                   double scale);

// Of a vocabulary cut between ranks: these columns of the logits are the vocabulary's [first, first + valid).
struct SplitColumns {
  std::int64_t first;
  std::int64_t valid;
};
void split_cross_entropy_statistics(HostTensor& statistics, const HostTensor& logits, const HostTensor& targets,
                                    SplitColumns columns);
void split_cross_entropy(HostTensor& losses, HostTensor* dlogits, const HostTensor& logits, const HostTensor& targets,
                         const HostTensor& statistics, double scale, SplitColumns columns);

// Of a part, `first` is the row of the larger table that the table begins with.
void embedding_forward(HostTensor& y, const HostTensor& table, const HostTensor& tokens,
                       const HostTensor* position_table, const HostTensor* positions,
                       std::optional<std::int64_t> first = {});
void embedding_backward(HostTensor& dtable, const HostTensor& dy, const HostTensor& indices, bool accumulate,
                        std::optional<std::int64_t> first = {});

void rope_table(HostTensor& cos, HostTensor& sin, const HostTensor& positions, double theta,
                const std::optional<RopeSlowing>& slowing);
void rope(HostTensor& x, const HostTensor& cos, const HostTensor& sin, bool inverse, const HostTensor* positions = {});

// `mask`, when given, multiplies the probabilities: (B, H, T, S), 0 or 1 / (1 - p).
struct AttentionOptions {
  double scale = 1;
  bool causal = true;
  const std::vector<double>* mask = nullptr;
  // (B, T): a query sees keys from starts - first_key on.
  const HostTensor* starts = nullptr;
  std::int64_t first_key = 0;
  // Also say (HostTensor::narrowed) what it may cost that probabilities and gradients of scores are rounded to the
  // operands' type before they are multiplied, and each query head's part of grouped dk and dv before it is added.
  bool narrow_terms = false;
};
void attention_forward(HostTensor& o, HostTensor& lse, const HostTensor& q, const HostTensor& k, const HostTensor& v,
                       const AttentionOptions& options);
struct AttentionGradients {
  HostTensor& dq;
  HostTensor& dk;
  HostTensor& dv;
};
struct AttentionSaved {
  const HostTensor& q;
  const HostTensor& k;
  const HostTensor& v;
  const HostTensor& o;
  const HostTensor& lse;
};
void attention_backward(AttentionGradients gradients, const HostTensor& d_o, const AttentionSaved& saved,
                        const AttentionOptions& options);

void attention_merge(HostTensor& o, HostTensor& lse, const HostTensor& part, const HostTensor& part_lse, bool first);

struct OptimizerOptions {
  double beta1 = 0;  // SGD: of the momentum
  double beta2 = 0;
  double eps = 0;
  double decay = 0;
  std::int64_t decayed = 0;
};
// weight and momentum may be none; control as in kernels/step_control.h.
void adamw(HostTensor& master, HostTensor* weight, HostTensor& m, HostTensor& v, const HostTensor& gradient,
           const HostTensor& control, const OptimizerOptions& options);
void sgd(HostTensor& master, HostTensor* weight, HostTensor* momentum, const HostTensor& gradient,
         const HostTensor& control, const OptimizerOptions& options);

}  // namespace lockstep::tests::reference
