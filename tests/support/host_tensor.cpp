#include "support/host_tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tensor/fp8.h"

namespace lockstep::tests {

namespace {
// A dim seen as (outer, dim, inner) of a dense array.
struct Cut {
  std::int64_t outer = 1, inner = 1;
  Cut(const Shape& shape, int dim) {
    for (int i = 0; i < dim; ++i) outer *= shape[i];
    for (int i = dim + 1; i < shape.dims(); ++i) inner *= shape[i];
  }
};

Shape with_dim(const Shape& shape, int dim, std::int64_t count) {
  std::vector<std::int64_t> extents;
  for (int i = 0; i < shape.dims(); ++i) extents.push_back(i == dim ? count : shape[i]);
  return Shape(std::span<const std::int64_t>(extents));
}

// The smallest step of a type near zero; flushing subnormals of float is allowed, those of fp16 are ordinary numbers.
double least_step(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-1022;
    case DType::f16:
      return 0x1p-25;
    default:
      return 0x1p-126;
  }
}
}  // namespace

HostTensor HostTensor::slice(int dim, std::int64_t begin, std::int64_t count) const {
  const Cut cut(shape, dim);
  HostTensor part(name, with_dim(shape, dim, count), dtype);
  for (std::int64_t o = 0; o < cut.outer; ++o)
    std::copy_n(value.begin() + (o * shape[dim] + begin) * cut.inner, count * cut.inner,
                part.value.begin() + o * count * cut.inner);
  return part;
}

void HostTensor::paste(int dim, std::int64_t begin, const HostTensor& part) {
  const Cut cut(shape, dim);
  if (magnitude.empty()) magnitude.assign(value.size(), 0.0);
  const std::int64_t count = part.shape[dim];
  for (std::int64_t o = 0; o < cut.outer; ++o)
    for (std::int64_t i = 0; i < count * cut.inner; ++i) {
      const std::int64_t from = o * count * cut.inner + i, to = (o * shape[dim] + begin) * cut.inner + i;
      value[to] = part.value[from];
      magnitude[to] = part.magnitude.empty() ? std::abs(part.value[from]) : part.magnitude[from];
      if (!part.narrowed.empty()) set_narrowed(to, part.narrowed[from]);
    }
  terms = std::max(terms, part.terms);
}

namespace {
// To nearest, ties to even, at `bits` of precision and no finer than 2^least: straight from the double, in one
// rounding.
double round_bits(double value, int bits, int least, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double step = std::exp2(std::max(std::ilogb(value) - bits + 1, least));
  const double rounded = std::nearbyint(value / step) * step;
  return std::abs(rounded) > largest ? std::copysign(INFINITY, value) : rounded;
}
}  // namespace

// What is larger than the largest is that.
static double saturated(double value, int bits, int least, double largest) {
  return std::isnan(value) ? value : std::clamp(round_bits(value, bits, least, INFINITY), -largest, largest);
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return value;
    case DType::f32:
      return static_cast<float>(value);
    case DType::bf16:
      return round_bits(value, 8, -133, 0x1.fep127);
    case DType::f16:
      return round_bits(value, 11, -24, 65504);
    case DType::i32:
    case DType::i64:
      return std::trunc(value);
    case DType::f8e4m3:
      return saturated(value, 4, -9, 448);
    case DType::f8e5m2:
      return saturated(value, 3, -16, 57344);
  }
  return value;
}

void store_element(std::byte* at, DType dtype, double value) {
  const auto put = [at](auto v) { std::memcpy(at, &v, sizeof v); };
  switch (dtype) {
    case DType::f64:
      return put(value);
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::bf16:
      return put(bf16(static_cast<float>(value)));
    case DType::f16:
      return put(f16(static_cast<float>(value)));
    case DType::i32:
      return put(static_cast<std::int32_t>(value));
    case DType::i64:
      return put(static_cast<std::int64_t>(value));
    case DType::f8e4m3:
      return put(f8e4m3(static_cast<float>(value)));
    case DType::f8e5m2:
      return put(f8e5m2(static_cast<float>(value)));
  }
}

double load_element(const std::byte* at, DType dtype) {
  const auto get = [at](auto v) {
    std::memcpy(&v, at, sizeof v);
    return v;
  };
  switch (dtype) {
    case DType::f64:
      return get(double{});
    case DType::f32:
      return get(float{});
    case DType::bf16:
      return static_cast<float>(get(bf16{}));
    case DType::f16:
      return static_cast<float>(get(f16{}));
    case DType::i32:
      return get(std::int32_t{});
    case DType::i64:
      return static_cast<double>(get(std::int64_t{}));
    case DType::f8e4m3:
      return static_cast<float>(get(f8e4m3{}));
    case DType::f8e5m2:
      return static_cast<float>(get(f8e5m2{}));
  }
  return 0;
}

void round_all(HostTensor& t) {
  for (double& v : t.value) v = round_to(t.dtype, v);
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0;
  }
}

double allowed_error(const HostTensor& want, std::int64_t i, DType accumulator, bool narrow_terms) {
  if (!is_float(want.dtype)) return 0;
  const double size = std::max(std::abs(want.value[i]), want.magnitude.empty() ? 0.0 : want.magnitude[i]);
  const double sum = unit_roundoff(accumulator) * (32 + 4 * std::sqrt(want.terms)) * size;
  const double narrowed = narrow_terms && !want.narrowed.empty() ? unit_roundoff(want.dtype) * want.narrowed[i] : 0;
  return unit_roundoff(want.dtype) * (std::abs(want.value[i]) + sum + narrowed) + sum + narrowed +
         least_step(want.dtype);
}

std::string difference(const HostTensor& got, const HostTensor& want, DType accumulator, bool narrow_terms) {
  double worst = 0;
  std::int64_t at = -1;
  for (std::int64_t i = 0; i < want.elements(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (got[i] == want[i]) continue;  // infinities and integers, whose difference over what is allowed is no number
    const double error = std::abs(got[i] - want[i]) / allowed_error(want, i, accumulator, narrow_terms);
    if (!(error <= std::max(worst, 1.0))) {
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      at = i;
      if (std::isinf(worst)) break;
    }
  }
  if (at < 0) return "";
  return fmt::format(
      "{} {} {}: element {} is {:.17g}, the reference says {:.17g}, off by {:.3g} where {:.3g} is allowed",
      name_of(want.dtype), want.name, want.shape, at, got[at], want[at], got[at] - want[at],
      allowed_error(want, at, accumulator, narrow_terms));
}

}  // namespace lockstep::tests
