#include "support/kernel_cases.h"

#include "support/cases/families.h"

namespace lockstep::tests {

std::string label(std::initializer_list<std::int64_t> extents) {
  std::string text;
  for (const std::int64_t extent : extents) text += fmt::format("{}{}", text.empty() ? "" : "x", extent);
  return text;
}

std::vector<DType> gradient_types(DType activations) {
  if (accumulator_of(activations) == activations) return {activations};
  return {activations, accumulator_of(activations)};
}

std::string gradient_label(DType activations, DType gradient, bool accumulate) {
  return (accumulate ? "_accumulate" : "") + (gradient == activations ? "" : "_to_" + std::string(name_of(gradient)));
}

KernelCase unaligned(KernelCase made) {
  made.shape += "_unaligned";
  for (Operand& operand : made.operands) operand.gaps[0] = 6;
  return made;
}

const std::vector<KernelCase>& kernel_cases() {
  static const std::vector<KernelCase> all = [] {
    std::vector<KernelCase> cases;
    for (const DType dtype : kFloatTypes)
      for (const auto family :
           {matmul_cases, attention_cases, heads_cases, rmsnorm_cases, layernorm_cases, activation_cases,
            elementwise_cases, token_cases, cross_entropy_cases, split_cross_entropy_cases, random_cases,
            optimizer_cases, block_hash_cases, fp8_cases, tree_sum_cases, compression_cases, mask_cases}) {
        Cases some = family(dtype);
        std::move(some.begin(), some.end(), std::back_inserter(cases));
      }
    return cases;
  }();
  return all;
}

}  // namespace lockstep::tests
