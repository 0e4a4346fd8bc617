// Matrix products by cuBLASLt (products.h), and the bias that joins them.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/matmul.h"

namespace lockstep::cuda {

namespace {

// c = sums [+ what c held] [+ bias], rounded once. sums may be c itself, or none: then they are zero.
template <class R, class S>
__global__ void finish(R* c, std::int64_t stride, const Compute<R>* sums, std::int64_t sums_stride, const S* bias,
                       std::int64_t M, std::int64_t N, bool accumulate) {
  using T = Compute<R>;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < M * N;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t row = i / N, column = i % N;
    R& out = c[row * stride + column];
    T total = sums ? sums[row * sums_stride + column] : T(0);
    if (accumulate) total += widen(out);
    out = narrow<R>(bias ? total + static_cast<T>(widen(bias[column])) : total);
  }
}

// What is left to do when the sums of rows [first, first + rows) of c are known; none: they are zero.
void finish_rows(const MatmulArgs& m, std::int64_t first, std::int64_t rows, const Tensor& sums, bool accumulate,
                 Stream& stream) {
  const std::int64_t N = m.c.dim(1);
  // A bias of FP8 operands is bf16.
  with_float_and_result(is_fp8(m.a.dtype()) ? DType::bf16 : m.a.dtype(), m.c.dtype(), [&](auto s, auto r) {
    using S = typename decltype(s)::Type;
    using R = typename decltype(r)::Type;
    finish<R, S><<<blocks_for(rows * N), kThreads, 0, native(stream)>>>(
        m.c.data<R>() + first * m.c.stride(0), m.c.stride(0), sums ? sums.template data<Compute<R>>() : nullptr,
        sums ? sums.stride(0) : 0, m.bias ? m.bias.template data<S>() : nullptr, rows, N, accumulate);
  });
  check_launch("matmul's bias");
}

// Whether the library can take one for the other: the same stride, and no looser alignment.
bool lies_like(const ConstTensor& addend, const Tensor& c) {
  const auto address = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 256; };
  return addend.stride(0) == c.stride(0) && (address(addend.raw()) == 0 || address(addend.raw()) == address(c.raw()));
}

}  // namespace

void matmul(const MatmulArgs& m, lockstep::Stream& on) {
  Stream& stream = Stream::of(on);
  const std::int64_t M = m.c.dim(0), N = m.c.dim(1), K = m.a.dim(m.transpose_a ? 0 : 1);
  if (M == 0 || N == 0) return;
  if (m.addend && (m.bias || K == 0 || !lies_like(m.addend, m.c))) {
    const std::int64_t size = size_of(m.c.dtype());
    check_cuda(cudaMemcpy2DAsync(m.c.raw(), m.c.stride(0) * size, m.addend.raw(), m.addend.stride(0) * size, N * size,
                                 M, cudaMemcpyDeviceToDevice, native(stream)),
               "matmul's addend");
    MatmulArgs rest = m;
    rest.addend = {};
    rest.accumulate = true;
    return cuda::matmul(rest, on);
  }
  if (K == 0) {
    if (!m.accumulate || m.bias) finish_rows(m, 0, M, {}, m.accumulate, stream);
    return;
  }
  Products& products = Products::of(stream);
  const bool narrow_result = size_of(m.c.dtype()) == 2;
  if (!m.bias || !narrow_result) {
    products.multiply(m, stream.scratch(), kScratchBytes, stream);
    if (m.bias) finish_rows(m, 0, M, m.c, false, stream);
    return;
  }
  // A bias joins before a 16-bit result is rounded. Some of the library's kernels round in between, so the sums are
  // made in fp32 in half of the scratch, as many rows at a time as fit, and the other half is the library's.
  std::int64_t rows_at_a_time = std::max<std::int64_t>(1, kScratchBytes / 2 / (N * 4));
  if (is_fp8(m.a.dtype())) rows_at_a_time = std::max<std::int64_t>(16, rows_at_a_time / 16 * 16);
  for (std::int64_t first = 0; first < M; first += rows_at_a_time) {
    const std::int64_t rows = std::min(rows_at_a_time, M - first);
    const Tensor sums(stream.scratch(), DType::f32, Device::cuda, {rows, N});
    products.multiply({.c = sums,
                       .a = m.a.slice(m.transpose_a ? 1 : 0, first, rows),
                       .b = m.b,
                       .transpose_a = m.transpose_a,
                       .transpose_b = m.transpose_b,
                       .scale_a = m.scale_a,
                       .scale_b = m.scale_b,
                       .fast_sums = m.fast_sums},
                      static_cast<char*>(stream.scratch()) + kScratchBytes / 2, kScratchBytes / 2, stream);
    finish_rows(m, first, rows, sums, m.accumulate, stream);
  }
}

}  // namespace lockstep::cuda
