// A tensor: a view of elements somebody else owns.
//
// It is a pointer, an element type, a device, a shape and strides (in elements); copying it copies the view. Tensor may
// be written through, ConstTensor may not; a Tensor converts to a ConstTensor. A default-constructed one is "none" (an
// optional operand that is absent). On meta the pointer is null and everything else is as usual.
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/memory.h"
#include "tensor/shape.h"

namespace lockstep {

template <class Byte>  // void or const void
class BasicTensor {
 public:
  using Pointer = Byte*;

  BasicTensor() = default;
  // Contiguous, row-major.
  BasicTensor(Byte* data, DType dtype, Device device, const Shape& shape);
  // A writable view is a readable one.
  template <class Other>
  requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
      BasicTensor(const BasicTensor<Other>& other)  // NOLINT: implicit on purpose
      : data_(other.raw()),
        shape_(other.shape()),
        dtype_(other.dtype()),
        device_(other.device()),
        exists_(!other.none()) {
    for (int i = 0; i < shape_.dims(); ++i) strides_[i] = other.stride(i);
  }

  bool none() const { return !exists_; }
  explicit operator bool() const { return exists_; }
  Byte* raw() const { return data_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Shape& shape() const { return shape_; }
  int dims() const { return shape_.dims(); }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t stride(int i) const { return strides_[i < 0 ? i + dims() : i]; }
  std::int64_t elements() const { return shape_.elements(); }
  std::int64_t bytes() const { return elements() * size_of(dtype_); }
  bool contiguous() const;

  // The elements as T; the type must be the tensor's own.
  template <class T>
  auto data() const {
    LOCKSTEP_CHECK(dtype_of<T> == dtype_, "a {} tensor read as {}", name_of(dtype_), name_of(dtype_of<T>));
    return static_cast<std::conditional_t<std::is_const_v<Byte>, const T, T>*>(data_);
  }

  // Elements [begin, begin + count) of one dim.
  BasicTensor slice(int dim, std::int64_t begin, std::int64_t count) const;
  // Of a flat tensor: (rows, row) elements from `begin` on, each row beginning `pitch` elements after the one before.
  BasicTensor rows_apart(std::int64_t begin, std::int64_t rows, std::int64_t row, std::int64_t pitch) const;
  // The same elements under another shape; the tensor must be contiguous.
  BasicTensor reshape(const Shape& shape) const;
  // Splits one dim into two: (…, A·B, …) becomes (…, A, B, …); works for any strides.
  BasicTensor split(int dim, std::int64_t outer, std::int64_t inner) const;
  // Room for as many elements of a type no larger, each row (of the last dim, which must be contiguous) beginning at
  // the byte where it begins here. For results that are written over what they are made from. Of the same type, this
  // itself.
  BasicTensor narrowed(DType dtype) const;

 private:
  Byte* offset(std::int64_t elements) const;

  Byte* data_ = nullptr;
  Shape shape_;
  std::array<std::int64_t, Shape::kMaxDims> strides_{};
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
  bool exists_ = false;
};

using Tensor = BasicTensor<void>;
using ConstTensor = BasicTensor<const void>;

extern template class BasicTensor<void>;
extern template class BasicTensor<const void>;

// `count` elements of the buffer from element `offset` on, as a contiguous tensor.
Tensor view(const Buffer& buffer, DType dtype, const Shape& shape, std::int64_t offset = 0);

}  // namespace lockstep
