// Dense tensors on the cpu for tests that call kernels by hand: made from numbers, read back as numbers or bytes.
#pragma once
#include <cstring>

#include "support/devices.h"
#include "support/host_tensor.h"
#include "support/recipes.h"

namespace lockstep::tests {

class TensorBox {
 public:
  Stream& stream(int threads = 1) { return device_.stream(threads); }

  // All NaN (all ones, for integers).
  Tensor make(DType dtype, const Shape& shape) {
    buffers_.push_back(device_.memory().allocate(shape.elements() * size_of(dtype), Tag::data));
    if (const auto bytes = static_cast<std::size_t>(buffers_.back().bytes()); bytes > 0)
      std::memset(buffers_.back().data(), 0xff, bytes);
    return view(buffers_.back(), dtype, shape);
  }
  Tensor make(DType dtype, const Shape& shape, const std::vector<double>& values) {
    LOCKSTEP_CHECK(static_cast<std::int64_t>(values.size()) == shape.elements(), "{} values for {}", values.size(),
                   shape);
    const Tensor t = make(dtype, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i) write(t, i, values[static_cast<std::size_t>(i)]);
    return t;
  }
  Tensor make(DType dtype, const Shape& shape, const Recipe& fill, std::uint64_t seed = 1) {
    const Tensor t = make(dtype, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i) write(t, i, fill(seed, i));
    return t;
  }

  static void write(const Tensor& t, std::int64_t i, double value) {
    store_element(static_cast<std::byte*>(t.raw()) + i * size_of(t.dtype()), t.dtype(), value);
  }
  static double read(const ConstTensor& t, std::int64_t i) {
    return load_element(static_cast<const std::byte*>(t.raw()) + i * size_of(t.dtype()), t.dtype());
  }
  static std::vector<double> read(const ConstTensor& t) {
    LOCKSTEP_CHECK(t.contiguous(), "reading {} with gaps", t.shape());
    std::vector<double> values(static_cast<std::size_t>(t.elements()));
    for (std::int64_t i = 0; i < t.elements(); ++i) values[static_cast<std::size_t>(i)] = read(t, i);
    return values;
  }
  static std::vector<std::byte> bytes(const ConstTensor& t) {
    LOCKSTEP_CHECK(t.contiguous(), "reading {} with gaps", t.shape());
    const auto* first = static_cast<const std::byte*>(t.raw());
    return {first, first + t.bytes()};
  }

 private:
  CpuDevice device_;
  std::vector<Buffer> buffers_;
};

}  // namespace lockstep::tests
