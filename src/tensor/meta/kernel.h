// One kernel as meta counts it, for those who price it: its kind, and of a product its shape.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace lockstep::meta {

enum class KernelKind : std::uint8_t {
  product,
  attention_forward,
  attention_backward,
  norm,
  activation,
  rope,
  embedding,
  cross_entropy,
  elementwise,  // copies, casts, adds, biases, heads, dropout
  optimizer,
  sum,  // of gradients and norms
};
inline constexpr int kKernelKinds = 11;
inline constexpr std::array<std::string_view, kKernelKinds> kKernelNames = {
    "product",   "attention_forward", "attention_backward", "norm",      "activation", "rope",
    "embedding", "cross_entropy",     "elementwise",        "optimizer", "sum"};
constexpr std::string_view name_of(KernelKind kind) { return kKernelNames[static_cast<std::size_t>(kind)]; }

struct Kernel {
  KernelKind kind = KernelKind::elementwise;
  DType dtype = DType::f32;          // of its operands
  std::int64_t m = 0, n = 0, k = 0;  // of a product; of attention m: queries and k: keys of a sample, n: heads
  std::int64_t flops = 0;
  std::int64_t bytes = 0;  // read and written
};

}  // namespace lockstep::meta
