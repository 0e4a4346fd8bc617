#include "checkpoint/finite.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/element_parts.h"

namespace lockstep {
namespace {

constexpr std::int64_t kBlock = 4096;  // elements looked at together, without a branch

// The first of `count` elements whose exponent bits are all set; -1: none.
template <class Bits>
std::int64_t first_in_row(const void* row, std::int64_t count, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(row);
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t end = std::min(at + kBlock, count);
    bool any = false;
    for (std::int64_t i = at; i < end; ++i) any |= (bits[i] & exponent) == exponent;
    if (!any) continue;
    for (std::int64_t i = at; i < end; ++i)
      if ((bits[i] & exponent) == exponent) return i;
  }
  return -1;
}

std::int64_t first_in_row(const void* row, DType dtype, std::int64_t count) {
  switch (dtype) {
    case DType::f64:
      return first_in_row<std::uint64_t>(row, count, 0x7ff0'0000'0000'0000);
    case DType::f32:
      return first_in_row<std::uint32_t>(row, count, 0x7f80'0000);
    case DType::bf16:
      return first_in_row<std::uint16_t>(row, count, 0x7f80);
    case DType::f16:
      return first_in_row<std::uint16_t>(row, count, 0x7c00);
    default:
      return -1;  // whole numbers are finite
  }
}

}  // namespace

std::optional<NotFinite> first_not_finite(const ConstTensor& tensor) {
  LOCKSTEP_CHECK(tensor.device() == Device::cpu, "a tensor on {}", name_of(tensor.device()));
  const bool apart = tensor.dims() == 2 && tensor.stride(0) != tensor.dim(1);
  const std::int64_t rows = apart ? tensor.dim(0) : 1, row = apart ? tensor.dim(1) : tensor.elements();
  const std::int64_t size = size_of(tensor.dtype());
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* begin = static_cast<const std::byte*>(tensor.raw()) + (apart ? r * tensor.stride(0) : 0) * size;
    const std::int64_t at = first_in_row(begin, tensor.dtype(), row);
    if (at < 0) continue;
    double value = 0;
    convert_floats(&value, DType::f64, begin + at * size, tensor.dtype(), 1);
    return NotFinite{r * row + at, value};
  }
  return std::nullopt;
}

void require_finite_weights(std::span<const StateTensor> pieces, Stream* stream) {
  for (const StateTensor& piece : pieces) {
    if (piece.part != kWeightPart || piece.live.elements() == 0) continue;
    std::int64_t before = 0;  // elements of the parts that were looked at
    each_part(piece.live, stream, [&](const void* bytes, std::int64_t count) {
      const std::int64_t elements = count / size_of(piece.live.dtype());
      const auto bad = first_not_finite(ConstTensor(bytes, piece.live.dtype(), Device::cpu, {elements}));
      if (bad)
        throw StateRefused(fmt::format("the weight {} is not finite (element {} is {})", piece.tensor.name,
                                       piece.range.at(before + bad->element), bad->value));
      before += elements;
    });
  }
}

}  // namespace lockstep
