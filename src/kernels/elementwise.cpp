#include "kernels/elementwise.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/integers.h"
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

void scale(const ScaleArgs& a, Stream& stream) {
  Operands("scale", stream)
      .floats("y", a.y)
      .have_flat("y", a.y, a.y.shape(), a.y.dtype())
      .have_flat("x", a.x, a.y.shape(), a.y.dtype());
  dispatch(cpu::scale, cuda::scale, meta::scale, a, stream);
}

void clear(const Tensor& y, Stream& stream) {
  if (y.device() == stream.device()) return fill({.y = y, .value = 0}, stream);
  if (y.device() == Device::disk) return;  // new bytes are zero there
  LOCKSTEP_CHECK(y.device() == Device::cpu && y.contiguous(), "zeros on {} by a stream of {}", name_of(y.device()),
                 name_of(stream.device()));
  // Beside a GPU that may be most of the host's memory, more than one core clears in good time.
  constexpr std::int64_t kAtOnce = 64 << 20;
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  const std::int64_t each =
      round_up(ceil_div(y.bytes(), std::clamp<std::int64_t>(y.bytes() / kAtOnce, 1, cores)), 4096);
  std::vector<std::jthread> others;
  for (std::int64_t at = each; at < y.bytes(); at += each)
    others.emplace_back([&, at] {
      std::memset(static_cast<char*>(y.raw()) + at, 0, static_cast<std::size_t>(std::min(each, y.bytes() - at)));
    });
  std::memset(y.raw(), 0, static_cast<std::size_t>(std::min(each, y.bytes())));
}

void fill(const FillArgs& a, Stream& stream) {
  Operands("fill", stream).floats("y", a.y).have_flat("y", a.y, a.y.shape(), a.y.dtype());
  dispatch(cpu::fill, cuda::fill, meta::fill, a, stream);
}

}  // namespace lockstep
