#include "tensor/tensor.h"

namespace lockstep {

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.dims(); ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + ")";
}

template <class Byte>
BasicTensor<Byte>::BasicTensor(Byte* data, DType dtype, Device device, const Shape& shape)
    : data_(data), shape_(shape), dtype_(dtype), device_(device), exists_(true) {
  std::int64_t stride = 1;
  for (int i = shape.dims() - 1; i >= 0; --i) {
    strides_[i] = stride;
    stride *= shape[i];
  }
}

template <class Byte>
bool BasicTensor<Byte>::contiguous() const {
  std::int64_t stride = 1;
  for (int i = dims() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != stride) return false;
    stride *= shape_[i];
  }
  return true;
}

template <class Byte>
Byte* BasicTensor<Byte>::offset(std::int64_t elements) const {
  using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
  return data_ ? static_cast<Char*>(data_) + elements * size_of(dtype_) : nullptr;
}

template <class Byte>
BasicTensor<Byte> BasicTensor<Byte>::slice(int dim, std::int64_t begin, std::int64_t count) const {
  if (dim < 0) dim += dims();
  LOCKSTEP_CHECK(dim >= 0 && dim < dims() && begin >= 0 && count >= 0 && begin + count <= shape_[dim],
                 "slice [{}, {}) of dim {} of {}", begin, begin + count, dim, shape_);
  BasicTensor result = *this;
  std::array<std::int64_t, Shape::kMaxDims> extents{};
  for (int i = 0; i < dims(); ++i) extents[i] = i == dim ? count : shape_[i];
  result.shape_ = Shape(std::span(extents.data(), dims()));
  result.data_ = offset(begin * strides_[dim]);
  return result;
}

template <class Byte>
BasicTensor<Byte> BasicTensor<Byte>::rows_apart(std::int64_t begin, std::int64_t rows, std::int64_t row,
                                                std::int64_t pitch) const {
  LOCKSTEP_CHECK(dims() == 1 && stride(0) == 1 && rows >= 1 && pitch >= row && begin >= 0 &&
                     begin + (rows - 1) * pitch + row <= elements(),
                 "{} rows of {}, {} apart, from {} on of {} elements", rows, row, pitch, begin, elements());
  BasicTensor result = *this;
  result.data_ = offset(begin);
  result.shape_ = {rows, row};
  result.strides_[0] = pitch;
  result.strides_[1] = 1;
  return result;
}

template <class Byte>
BasicTensor<Byte> BasicTensor<Byte>::reshape(const Shape& shape) const {
  LOCKSTEP_CHECK(contiguous(), "reshape of a tensor {} that is not contiguous", shape_);
  LOCKSTEP_CHECK(shape.elements() == elements(), "reshape of {} to {}", shape_, shape);
  return BasicTensor(data_, dtype_, device_, shape);
}

template <class Byte>
BasicTensor<Byte> BasicTensor<Byte>::split(int dim, std::int64_t outer, std::int64_t inner) const {
  if (dim < 0) dim += dims();
  LOCKSTEP_CHECK(dims() < Shape::kMaxDims && dim >= 0 && dim < dims() && shape_[dim] == outer * inner,
                 "split of dim {} of {} into {} x {}", dim, shape_, outer, inner);
  BasicTensor result = *this;
  std::array<std::int64_t, Shape::kMaxDims> extents{};
  for (int from = 0, to = 0; from < dims(); ++from, ++to) {
    extents[to] = shape_[from];
    result.strides_[to] = strides_[from];
    if (from == dim) {
      extents[to] = outer;
      result.strides_[to] = strides_[from] * inner;
      ++to;
      extents[to] = inner;
      result.strides_[to] = strides_[from];
    }
  }
  result.shape_ = Shape(std::span(extents.data(), dims() + 1));
  return result;
}

template <class Byte>
BasicTensor<Byte> BasicTensor<Byte>::narrowed(DType dtype) const {
  LOCKSTEP_CHECK(dims() > 0 && (dim(-1) <= 1 || stride(-1) == 1) && size_of(dtype_) % size_of(dtype) == 0,
                 "rows of {} {} seen as {}", shape_, name_of(dtype_), name_of(dtype));
  BasicTensor result = *this;
  for (int i = 0; i + 1 < dims(); ++i) result.strides_[i] *= size_of(dtype_) / size_of(dtype);
  result.dtype_ = dtype;
  return result;
}

template class BasicTensor<void>;
template class BasicTensor<const void>;

Tensor view(const Buffer& buffer, DType dtype, const Shape& shape, std::int64_t offset) {
  LOCKSTEP_CHECK(buffer.memory(), "a view of an empty buffer");
  LOCKSTEP_CHECK((offset + shape.elements()) * size_of(dtype) <= buffer.bytes(),
                 "a view of {} {} at element {} in {} bytes", shape, name_of(dtype), offset, buffer.bytes());
  char* data = static_cast<char*>(buffer.data());
  return Tensor(data ? data + offset * size_of(dtype) : nullptr, dtype, buffer.memory()->device(), shape);
}

}  // namespace lockstep

fmt::appender fmt::formatter<lockstep::Shape>::format(const lockstep::Shape& shape, format_context& context) const {
  return fmt::format_to(context.out(), "{}", lockstep::to_string(shape));
}
