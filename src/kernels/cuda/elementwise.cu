#include "kernels/elementwise.h"

#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

namespace {

// One rounding from any float type to any other. From double to 16 bits the way leads over float, rounded to odd, so
// that the second rounding sees that something was lost by the first.
template <class To, class From>
__device__ To convert(From value) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    const float toward_zero = __double2float_rz(value);
    const bool exact = static_cast<double>(toward_zero) == value;
    return narrow<To>(exact ? toward_zero : __uint_as_float(__float_as_uint(toward_zero) | 1u));
  } else {
    return narrow<To>(widen(value));
  }
}

__device__ std::int64_t first_element() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::int64_t element_step() { return std::int64_t{gridDim.x} * blockDim.x; }

template <class S>
__global__ void add_all(S* y, const S* a, const S* b, std::int64_t count) {
  for (std::int64_t i = first_element(); i < count; i += element_step()) y[i] = narrow<S>(widen(a[i]) + widen(b[i]));
}

template <class To, class From>
__global__ void cast_all(To* y, const From* x, std::int64_t count) {
  for (std::int64_t i = first_element(); i < count; i += element_step()) y[i] = convert<To>(x[i]);
}

template <class S>
__global__ void fill_all(S* y, double value, std::int64_t count) {
  const S each = convert<S>(value);
  for (std::int64_t i = first_element(); i < count; i += element_step()) y[i] = each;
}

}  // namespace

void add(const AddArgs& args, lockstep::Stream& stream) {
  const std::int64_t count = args.y.elements();
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    add_all<S><<<blocks_for(count), kThreads, 0, native(stream)>>>(args.y.data<S>(), args.a.data<S>(), args.b.data<S>(),
                                                                   count);
  });
  check_launch("add");
}

void cast(const CastArgs& args, lockstep::Stream& stream) {
  const std::int64_t count = args.y.elements();
  with_float(args.x.dtype(), [&](auto from) {
    with_float(args.y.dtype(), [&](auto to) {
      using From = typename decltype(from)::Type;
      using To = typename decltype(to)::Type;
      cast_all<To, From>
          <<<blocks_for(count), kThreads, 0, native(stream)>>>(args.y.data<To>(), args.x.data<From>(), count);
    });
  });
  check_launch("cast");
}

void fill(const FillArgs& args, lockstep::Stream& stream) {
  const std::int64_t count = args.y.elements();
  with_float(args.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    fill_all<S><<<blocks_for(count), kThreads, 0, native(stream)>>>(args.y.data<S>(), args.value, count);
  });
  check_launch("fill");
}

}  // namespace lockstep::cuda
