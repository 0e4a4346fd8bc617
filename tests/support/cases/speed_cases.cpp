// Every kernel at the sizes of a small model's step: 2048 tokens, width 1024, 50257 words.
#include "support/cases/attention_cases.h"
#include "support/cases/matmul_cases.h"

namespace lockstep::tests {

namespace {
// The same kernel on other sizes: the first case of the family for which `wanted` holds, its extents renamed.
KernelCase resized(KernelCase kernel, const std::vector<std::pair<std::string, Shape>>& shapes) {
  kernel.shape = "speed";
  kernel.prepare = {};  // what a kernel takes does not depend on what the numbers are
  kernel.reference = {};
  for (Operand& operand : kernel.operands)
    for (const auto& [name, shape] : shapes)
      if (operand.name == name) operand.shape = shape;
  return kernel;
}

KernelCase first(const Cases& cases, const std::string& op, const std::string& ending = "") {
  for (const KernelCase& kernel : cases)
    if (kernel.op == op && kernel.plain && (ending.empty() || kernel.shape.ends_with(ending))) return kernel;
  LOCKSTEP_CHECK(false, "no case of {} {}", op, ending);
  return {};
}
}  // namespace

std::vector<KernelCase> speed_cases(DType dtype) {
  constexpr std::int64_t N = 2048, B = 2, T = 1024, C = 1024, F = 2816, V = 50257, H = 16, K = 4, D = 64;
  const DType wide = accumulator_of(dtype);
  Cases cases = {
      make_matmul(dtype, {.m = N, .n = C, .k = C, .transpose_b = true, .c = dtype}),
      make_matmul(dtype, {.m = N, .n = 2 * F, .k = C, .transpose_b = true, .c = dtype}),
      make_matmul(dtype, {.m = N, .n = C, .k = 2 * F, .c = dtype}),
      make_matmul(dtype, {.m = C, .n = C, .k = N, .transpose_a = true, .accumulate = true, .c = wide}),
      make_matmul(dtype, {.m = 1, .n = 8 * C, .k = 4 * C, .transpose_b = true, .c = dtype}),  // a token is generated
      make_matmul(dtype, {.m = 8, .n = 8 * C, .k = 4 * C, .transpose_b = true, .c = dtype}),
      make_matmul(dtype, {.m = 1, .n = 8 * C, .k = 4 * C, .c = dtype}),
      make_attention_forward(dtype, {B, T, T, H, K, D, true, Layout::fused}),
      make_attention_backward(dtype, {B, T, T, H, K, D, true, Layout::fused}),
  };
  cases.back().prepare = {};  // the reference's forward would take longer than all benchmarks
  const Shape rows{N, C}, tokens{B, T, C};
  const Cases rms = rmsnorm_cases(dtype), activations = activation_cases(dtype), plain = elementwise_cases(dtype);
  cases.push_back(
      resized(first(rms, "rmsnorm_forward", "_residual"),
              {{"y", rows}, {"rstd", {N}}, {"x", rows}, {"weight", {C}}, {"residual", rows}, {"sum", rows}}));
  cases.push_back(
      resized(first(rms, "rmsnorm_backward_input", "_dresidual"),
              {{"x", rows}, {"weight", {C}}, {"rstd", {N}}, {"dy", rows}, {"dresidual", rows}, {"dx", rows}}));
  cases.push_back(
      resized(first(rms, "rmsnorm_backward_weight"), {{"x", rows}, {"dweight", {C}}, {"rstd", {N}}, {"dy", rows}}));
  cases.push_back(resized(first(activations, "swiglu_forward"), {{"y", {N, F}}, {"gate_up", {N, 2 * F}}}));
  cases.push_back(resized(first(activations, "swiglu_backward"),
                          {{"d_gate_up", {N, 2 * F}}, {"dy", {N, F}}, {"gate_up", {N, 2 * F}}}));
  cases.push_back(resized(first(activations, "gelu_forward"), {{"y", {N, F}}, {"x", {N, F}}}));
  cases.push_back(resized(first(activations, "gelu_backward"), {{"dx", {N, F}}, {"dy", {N, F}}, {"x", {N, F}}}));
  cases.push_back(resized(first(plain, "add"), {{"y", {N * C}}, {"a", {N * C}}, {"b", {N * C}}}));
  cases.push_back(resized(first(plain, "bias_backward"), {{"dbias", {C}}, {"dy", rows}}));
  cases.push_back(resized(first(cross_entropy_cases(dtype), "cross_entropy"),
                          {{"losses", {256}}, {"logits", {256, V}}, {"targets", {256}}, {"dlogits", {256, V}}}));
  const Cases split = split_cross_entropy_cases(dtype);  // a rank's quarter of the words
  const Shape quarter{256, 12568};
  cases.push_back(resized(first(split, "split_cross_entropy_statistics"),
                          {{"statistics", {256, 3}}, {"logits", quarter}, {"targets", {256}}}));
  cases.push_back(resized(
      first(split, "split_cross_entropy"),
      {{"losses", {256}}, {"logits", quarter}, {"targets", {256}}, {"statistics", {4, 256, 3}}, {"dlogits", quarter}}));
  cases.push_back(
      resized(first(token_cases(dtype), "embedding_forward"), {{"y", tokens}, {"table", {V, C}}, {"tokens", {B, T}}}));
  cases.push_back(resized(first(token_cases(dtype), "embedding_backward"),
                          {{"dtable", {V, C}}, {"dy", tokens}, {"indices", {B, T}}}));
  cases.push_back(
      resized(first(token_cases(dtype), "rope"), {{"x", {B, T, H, D}}, {"cos", {T, D / 2}}, {"sin", {T, D / 2}}}));
  // A turn by a fixed angle, or repeated runs would drive x to zero or infinity, where arithmetic has another speed.
  cases.back().operands[1].fill = constant(0.8);
  cases.back().operands[2].fill = constant(0.6);
  cases.push_back(
      resized(first(token_cases(dtype), "rope_table"), {{"cos", {T, D / 2}}, {"sin", {T, D / 2}}, {"positions", {T}}}));
  const Cases heads = heads_cases(dtype);
  const Shape queries{B, T, H, D}, statistics{B, H, T};
  cases.push_back(resized(first(heads, "copy_heads"), {{"y", queries}, {"x", queries}}));
  cases.push_back(resized(first(heads, "attention_merge"),
                          {{"o", queries}, {"lse", statistics}, {"part", queries}, {"part_lse", statistics}}));
  const Cases layer = layernorm_cases(dtype);
  cases.push_back(resized(first(layer, "layernorm_forward"), {{"y", rows},
                                                              {"mean", {N}},
                                                              {"rstd", {N}},
                                                              {"x", rows},
                                                              {"weight", {C}},
                                                              {"bias", {C}},
                                                              {"residual", rows},
                                                              {"sum", rows}}));
  cases.push_back(resized(
      first(layer, "layernorm_backward_input"),
      {{"x", rows}, {"weight", {C}}, {"mean", {N}}, {"rstd", {N}}, {"dy", rows}, {"dresidual", rows}, {"dx", rows}}));
  cases.push_back(resized(first(layer, "layernorm_backward_weight"),
                          {{"x", rows}, {"mean", {N}}, {"rstd", {N}}, {"dy", rows}, {"dweight", {C}}, {"dbias", {C}}}));
  cases.push_back(resized(first(plain, "cast"), {{"y", {N * C}}, {"x", {N * C}}}));
  cases.push_back(resized(first(plain, "fill"), {{"y", {N * C}}}));
  cases.push_back(resized(first(random_cases(dtype), "dropout"), {{"x", rows}, {"y", rows}, {"positions", {T}}}));
  cases.push_back(resized(first(random_cases(dtype), "init_normal"), {{"x", {N * C}}}));
  const std::int64_t parameters = 4 << 20;
  cases.push_back(resized(first(optimizer_cases(dtype), "norm_sum"), {{"x", {parameters}}}));
  cases.push_back(resized(first(block_hash_cases(dtype), "block_hash"), {{"x", {parameters}}}));
  const Shape flat{parameters};
  cases.push_back(resized(first(optimizer_cases(dtype), "adamw"),
                          {{"master", flat}, {"gradient", flat}, {"m", flat}, {"v", flat}}));
  cases.push_back(
      resized(first(optimizer_cases(dtype), "sgd"), {{"master", flat}, {"gradient", flat}, {"momentum", flat}}));
  return cases;
}

}  // namespace lockstep::tests
