// Element types of tensors, and the two 16-bit floats C++20 does not have (the two 8-bit ones: tensor/fp8.h).
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i32, i64, f8e4m3, f8e5m2 };

// What kernels of floats compute with. The 8-bit floats are operands of products, with a scale beside them, and of
// nothing else.
constexpr bool is_float(DType t) { return t < DType::i32; }
constexpr bool is_fp8(DType t) { return t == DType::f8e4m3 || t == DType::f8e5m2; }

constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f8e4m3:
    case DType::f8e5m2:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f64:
      return "fp64";
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::f8e4m3:
      return "fp8e4m3";
    case DType::f8e5m2:
      return "fp8e5m2";
  }
  return "?";
}

// The type sums and statistics are kept in: double for fp64, float for everything narrower.
constexpr DType accumulator_of(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

// The upper half of a float. Conversion rounds to nearest, ties to even; a NaN stays a NaN.
struct bf16 {
  std::uint16_t bits;
  bf16() = default;
  explicit constexpr bf16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  explicit constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

 private:
  static constexpr std::uint16_t round(std::uint32_t u) {
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

// IEEE binary16, with subnormals. Conversion rounds to nearest, ties to even; overflow gives infinity.
struct f16 {
  std::uint16_t bits;
  f16() = default;
  explicit constexpr f16(float value) : bits(round(value)) {}
  explicit constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }

 private:
  static constexpr std::uint16_t round(float value) {
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint16_t sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u)
      return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
    if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves exactly the bits that remain, rounded by the adder
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
  }
};

static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

// The DType of a C++ element type.
template <class T>
constexpr DType dtype_of = DType::f64;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;

}  // namespace lockstep
