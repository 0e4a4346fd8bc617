#include "checkpoint/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>

#include "base/error.h"
#include "tensor/transfer.h"

namespace lockstep {
namespace {

// Rounded to odd, so that the rounding that follows to 16 bits sees that something was lost by this one.
float to_float(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - (away ? 1u : 0u)) | 1u);
}

template <class To, class From>
void convert(void* to, const void* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const From value = static_cast<const From*>(from)[i];
    To& result = static_cast<To*>(to)[i];
    if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>)
      result = static_cast<To>(value);
    else if constexpr (std::is_same_v<From, double>)
      result = To(to_float(value));
    else
      result = To(static_cast<float>(value));
  }
}

template <class From>
void convert_from(void* to, DType to_type, const void* from, std::int64_t count) {
  switch (to_type) {
    case DType::f64:
      return convert<double, From>(to, from, count);
    case DType::f32:
      return convert<float, From>(to, from, count);
    case DType::bf16:
      return convert<bf16, From>(to, from, count);
    default:
      return convert<f16, From>(to, from, count);
  }
}

}  // namespace

void convert_floats(void* to, DType to_type, const void* from, DType from_type, std::int64_t count) {
  LOCKSTEP_CHECK(is_float(to_type) && is_float(from_type), "{} to {}", name_of(from_type), name_of(to_type));
  if (to_type == from_type) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count * size_of(to_type)));
    return;
  }
  switch (from_type) {
    case DType::f64:
      return convert_from<double>(to, to_type, from, count);
    case DType::f32:
      return convert_from<float>(to, to_type, from, count);
    case DType::bf16:
      return convert_from<bf16>(to, to_type, from, count);
    default:
      return convert_from<f16>(to, to_type, from, count);
  }
}

void upload_floats(Tensor to, const void* from, DType from_type, Stream& stream) {
  constexpr std::int64_t kAtATime = 1 << 18;
  if (from_type == to.dtype() || to.device() == Device::meta) return upload(to, from, stream);
  const auto* source = static_cast<const std::byte*>(from);
  const auto room = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(std::min(to.elements(), kAtATime) * size_of(to.dtype())));
  for (std::int64_t at = 0; at < to.elements(); at += kAtATime) {
    const std::int64_t now = std::min(kAtATime, to.elements() - at);
    convert_floats(room.get(), to.dtype(), source + at * size_of(from_type), from_type, now);
    upload(to.slice(0, at, now), room.get(), stream);
  }
}

}  // namespace lockstep
