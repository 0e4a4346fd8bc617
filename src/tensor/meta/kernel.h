// One kernel as meta counts it: its kind, the operations and bytes of it, and of a product its shape. Work adds kernels
// up; who prices them (KernelPrices of plan/kernel_prices.h) sees each.
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
  code_bf16,
  code_int8,
  code_onebit,  // compression by blocks, both ways
  top_k,
};
inline constexpr std::array<std::string_view, 15> kKernelNames = {
    "product", "attention_forward", "attention_backward", "norm",        "activation",
    "rope",    "embedding",         "cross_entropy",      "elementwise", "optimizer",
    "sum",     "code_bf16",         "code_int8",          "code_onebit", "top_k"};
constexpr std::string_view name_of(KernelKind kind) { return kKernelNames[static_cast<std::size_t>(kind)]; }

struct Kernel {
  KernelKind kind = KernelKind::elementwise;
  DType dtype = DType::f32;          // of its operands
  std::int32_t head_width = 0;       // of attention
  std::int64_t m = 0, n = 0, k = 0;  // of a product; of attention m: queries, k: keys of a sample, n: heads of all
  std::int64_t flops = 0;
  std::int64_t read = 0, written = 0;  // bytes
  // Products, attention's included.
  bool is_product() const { return kind <= KernelKind::attention_backward; }
  // Codes and selections of compressed messages (docs/compression.md).
  bool compresses() const { return kind >= KernelKind::code_bf16; }
};

// What kernels did: floating-point operations, and bytes each kernel must read and write once.
struct Work {
  std::int64_t flops = 0;
  std::int64_t matmul_flops = 0;  // the part of `flops` that is matrix products, attention's included
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t matmul_bytes = 0;  // the part of both that matrix products and attention read and write
  std::int64_t calls = 0;
  double seconds = 0;  // at the prices of the stream, where it has some
  bool operator==(const Work&) const = default;
};

// How long a kernel takes on the machine that somebody asks about.
class KernelPricer {
 public:
  virtual ~KernelPricer() = default;
  virtual double seconds(const Kernel& kernel) const = 0;
};

}  // namespace lockstep::meta
