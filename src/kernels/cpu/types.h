// From a tensor's run-time element type to the C++ type a kernel is instantiated with.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "tensor/dtype.h"

namespace lockstep::cpu {

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls body(TypeTag<T>) for the float type at hand.
template <class Body>
void with_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f64:
      return body(TypeTag<double>{});
    case DType::f32:
      return body(TypeTag<float>{});
    case DType::bf16:
      return body(TypeTag<bf16>{});
    case DType::f16:
      return body(TypeTag<f16>{});
    default:
      break;
  }
  LOCKSTEP_CHECK(false, "a kernel of floats was given {}", name_of(dtype));
}

// Calls body(TypeTag<S>, TypeTag<G>) for activations of type S and a result that is S itself or its accumulator type.
template <class Body>
void with_float_and_result(DType dtype, DType result, Body&& body) {
  with_float(dtype, [&](auto s) {
    using S = typename decltype(s)::Type;
    if (result == dtype_of<S>) return body(s, s);
    if constexpr (!std::is_same_v<S, double> && !std::is_same_v<S, float>) {
      if (result == DType::f32) return body(s, TypeTag<float>{});
    }
    LOCKSTEP_CHECK(false, "a kernel of {} cannot give {}", name_of(dtype), name_of(result));
  });
}

// A double as the float that rounds on to a 16-bit type as the double itself would: rounded to odd, so that the second
// rounding sees that something was lost by the first.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - (away ? 1u : 0u)) | 1u);
}

// One rounding from any float type to any other.
template <class From, class To>
[[gnu::always_inline]] inline To convert(From value) {
  if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>)
    return static_cast<To>(value);
  else if constexpr (std::is_same_v<From, double>)
    return static_cast<To>(round_to_odd(value));
  else
    return static_cast<To>(static_cast<float>(value));
}

}  // namespace lockstep::cpu
