// The extents of a tensor: up to four dims, row-major order, outermost first.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/error.h"

namespace lockstep {

class Shape {
 public:
  static constexpr int kMaxDims = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims) : count_(static_cast<int>(dims.size())) {
    LOCKSTEP_CHECK(dims.size() <= kMaxDims, "{} dims, at most {} are supported", dims.size(), kMaxDims);
    for (int i = 0; i < count_; ++i) {
      dims_[i] = dims[i];
      LOCKSTEP_CHECK(dims_[i] >= 0, "dim {} is {}", i, dims_[i]);
    }
  }

  int dims() const { return count_; }
  std::int64_t operator[](int i) const { return dims_[i < 0 ? i + count_ : i]; }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < count_; ++i) n *= dims_[i];
    return n;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxDims> dims_{};
  int count_ = 0;
};

std::string to_string(const Shape& shape);  // "(2, 3)"

}  // namespace lockstep

template <>
struct fmt::formatter<lockstep::Shape> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  appender format(const lockstep::Shape& shape, format_context& context) const;
};
