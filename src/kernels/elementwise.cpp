#include "kernels/elementwise.h"

#include <cstring>

#include "kernels/operands.h"

namespace lockstep {

void add(const AddArgs& a, Stream& stream) {
  Operands("add", stream)
      .floats("y", a.y)
      .have_flat("y", a.y, a.y.shape(), a.y.dtype())
      .have_flat("a", a.a, a.y.shape(), a.y.dtype())
      .have_flat("b", a.b, a.y.shape(), a.y.dtype());
  dispatch(cpu::add, cuda::add, meta::add, a, stream);
}

void cast(const CastArgs& a, Stream& stream) {
  Operands("cast", stream)
      .floats("y", a.y)
      .floats("x", a.x)
      .have_flat("y", a.y, a.y.shape(), a.y.dtype())
      .have_flat("x", a.x, a.y.shape(), a.x.dtype());
  dispatch(cpu::cast, cuda::cast, meta::cast, a, stream);
}

void clear(const Tensor& y, Stream& stream) {
  if (y.device() == stream.device()) return fill({.y = y, .value = 0}, stream);
  if (y.device() == Device::disk) return;  // new bytes are zero there
  LOCKSTEP_CHECK(y.device() == Device::cpu && y.contiguous(), "zeros on {} by a stream of {}", name_of(y.device()),
                 name_of(stream.device()));
  std::memset(y.raw(), 0, static_cast<std::size_t>(y.bytes()));
}

void fill(const FillArgs& a, Stream& stream) {
  Operands("fill", stream).floats("y", a.y).have_flat("y", a.y, a.y.shape(), a.y.dtype());
  dispatch(cpu::fill, cuda::fill, meta::fill, a, stream);
}

}  // namespace lockstep
