#include "kernels/row_codes.h"

#include "kernels/cuda/block_code.cuh"
#include "kernels/cuda/magnitudes.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/sums_before.cuh"

namespace lockstep::cuda {

namespace {

// A warp takes a block of a row. Of the row's last block as many words as it needs are in the code.
template <class S>
__global__ void __launch_bounds__(kThreads) encode_blocks_of_rows(CodeWord* code, const S* x, std::int64_t rows,
                                                                  std::int64_t C, std::int64_t W, BlockForm form) {
  using A = Compute<S>;
  __shared__ A values[kCodingWarps][kBlock];
  __shared__ CodeWord words[kCodingWarps][kMostWords];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  A* const v = values[warp];
  CodeWord* const own = words[warp];
  const std::int64_t of_row = (C + kBlock - 1) / kBlock, each = words_of_block(form);
  for (std::int64_t b = std::int64_t{blockIdx.x} * kCodingWarps + warp; b < rows * of_row;
       b += std::int64_t{gridDim.x} * kCodingWarps) {
    const std::int64_t row = b / of_row, place = b % of_row, at = place * kBlock;
    const int count = static_cast<int>(C - at < kBlock ? C - at : kBlock);
    for (int i = lane; i < kBlock; i += 32) v[i] = i < count ? widen(x[row * C + at + i]) : A(0);
    __syncwarp();
    encode_block(form, v, count, own);
    __syncwarp();
    const std::int64_t left = W - place * each;
    for (int w = lane; w < (left < each ? left : each); w += 32) code[row * W + place * each + w] = own[w];
    __syncwarp();
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads) decode_blocks_of_rows(S* y, const CodeWord* code, std::int64_t elements,
                                                                  std::int64_t C, std::int64_t W, BlockForm form) {
  const std::int64_t each = words_of_block(form);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / C, place = i % C;
    y[i] = narrow<S>(
        decoded_element<Compute<S>>(form, code + row * W + place / kBlock * each, static_cast<int>(place % kBlock)));
  }
}

// Values and places of a row's code. Words are of 32 bits, so a double is two of them.
template <class S>
__device__ void put_value(CodeWord* values, int i, S value) {
  if constexpr (sizeof(S) == 8) {
    values[2 * i] = __double2loint(value);
    values[2 * i + 1] = __double2hiint(value);
  } else if constexpr (sizeof(S) == 4) {
    values[i] = __float_as_int(value);
  } else {
    reinterpret_cast<std::uint16_t*>(values)[i] = value.bits;
  }
}
template <class S>
__device__ S value_at(const CodeWord* values, int i) {
  if constexpr (sizeof(S) == 8) {
    return __hiloint2double(values[2 * i + 1], values[2 * i]);
  } else if constexpr (sizeof(S) == 4) {
    return __int_as_float(values[i]);
  } else {
    S value;
    value.bits = reinterpret_cast<const std::uint16_t*>(values)[i];
    return value;
  }
}

constexpr int kRowDigits = 256;  // values of a digit of 8 bits

// A block takes a row: the k-th largest magnitude digit by digit, from the highest, by counting how many elements have
// each value of the digit; then all that belong to the k, in the order of places.
template <class S>
__global__ void __launch_bounds__(kThreads)
    encode_largest_of_rows(CodeWord* code, const S* x, std::int64_t rows, int C, std::int64_t W, int k) {
  using A = Compute<S>;
  using Bits = Magnitude<A>;
  static_assert(kRowDigits == kThreads);
  __shared__ int counts[kRowDigits];
  __shared__ Bits found_bits;
  __shared__ int left;  // of the k, those that are not above what is found so far
  constexpr int kWidth = 8 * static_cast<int>(sizeof(A));
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const S* const in = x + row * C;
    if (thread == 0) {
      found_bits = 0;
      left = k;
    }
    for (int shift = kWidth - 8; shift >= 0; shift -= 8) {
      counts[thread] = 0;
      __syncthreads();
      const Bits found = found_bits;
      for (int i = thread; i < C; i += kThreads) {
        const Bits m = magnitude_of(widen(in[i]));
        if (shift + 8 == kWidth || (m >> (shift + 8 - 1) >> 1) == (found >> (shift + 8 - 1) >> 1))
          atomicAdd(&counts[static_cast<int>((m >> shift) & 255)], 1);
      }
      __syncthreads();
      if (thread == 0) {
        int d = kRowDigits - 1;
        for (; counts[d] < left; --d) left -= counts[d];
        found_bits |= static_cast<Bits>(d) << shift;
      }
      __syncthreads();
    }
    const Bits least = found_bits;
    const Count equals = static_cast<Count>(left);
    CodeWord* const out = code + row * W;
    for (std::int64_t w = thread; w < W; w += kThreads) out[w] = 0;
    __syncthreads();
    const std::int64_t value_words = (std::int64_t{k} * static_cast<std::int64_t>(sizeof(S)) + 3) / 4;
    auto* const places = reinterpret_cast<std::uint16_t*>(out + value_words);
    Count above_before = 0, equal_before = 0;
    for (int first = 0; first < C; first += kThreads) {
      const int i = first + thread;
      const S value = i < C ? in[i] : S{};
      const Bits m = magnitude_of(widen(value));
      const bool above = i < C && m > least, equal = i < C && m == least;
      const SumBefore sum = sum_before(static_cast<Count>(above) << 32 | static_cast<Count>(equal));
      const Count aboves = above_before + (sum.before >> 32), equal_ones = equal_before + (sum.before & 0xffffffffu);
      if (above || (equal && equal_ones < equals)) {
        const int j = static_cast<int>(aboves + (equal_ones < equals ? equal_ones : equals));
        put_value(out, j, value);
        places[j] = static_cast<std::uint16_t>(i);
      }
      above_before += sum.all >> 32;
      equal_before += sum.all & 0xffffffffu;
    }
    __syncthreads();
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    decode_largest_of_rows(S* y, const CodeWord* code, std::int64_t rows, int C, std::int64_t W, int k) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    S* const out = y + row * C;
    const CodeWord* const values = code + row * W;
    const std::int64_t value_words = (std::int64_t{k} * static_cast<std::int64_t>(sizeof(S)) + 3) / 4;
    const auto* const places = reinterpret_cast<const std::uint16_t*>(values + value_words);
    for (int i = static_cast<int>(threadIdx.x); i < C; i += kThreads) out[i] = narrow<S>(0.0f);
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < k; j += kThreads)
      if (places[j] < C) out[places[j]] = value_at<S>(values, j);
    __syncthreads();
  }
}

template <class S>
void load_forms() {
  cudaFuncAttributes attributes;  // asking for them loads the kernel
  const char* const what = "loading row codes";
  check_cuda(cudaFuncGetAttributes(&attributes, encode_blocks_of_rows<S>), what);
  check_cuda(cudaFuncGetAttributes(&attributes, decode_blocks_of_rows<S>), what);
  check_cuda(cudaFuncGetAttributes(&attributes, encode_largest_of_rows<S>), what);
  check_cuda(cudaFuncGetAttributes(&attributes, decode_largest_of_rows<S>), what);
}

}  // namespace

void load_row_codes() {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    with_float(dtype, [](auto s) { load_forms<typename decltype(s)::Type>(); });
}

void encode_rows(const EncodeRowsArgs& a, lockstep::Stream& stream) {
  const std::int64_t N = a.x.dim(0), C = a.x.dim(1), W = a.code.dim(1);
  if (N == 0 || C == 0) return;
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    if (a.form.largest > 0)
      encode_largest_of_rows<S><<<row_blocks(N), kThreads, 0, native(stream)>>>(
          a.code.data<CodeWord>(), a.x.data<S>(), N, static_cast<int>(C), W, static_cast<int>(a.form.largest));
    else
      encode_blocks_of_rows<S><<<blocks_for(N * ceil_div(C, kCodedBlock), kCodingWarps), kThreads, 0, native(stream)>>>(
          a.code.data<CodeWord>(), a.x.data<S>(), N, C, W, a.form.blocks);
  });
  check_launch("encode_rows");
}

void decode_rows(const DecodeRowsArgs& a, lockstep::Stream& stream) {
  const std::int64_t N = a.y.dim(0), C = a.y.dim(1), W = a.code.dim(1);
  if (N == 0 || C == 0) return;
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    if (a.form.largest > 0)
      decode_largest_of_rows<S><<<row_blocks(N), kThreads, 0, native(stream)>>>(
          a.y.data<S>(), a.code.data<CodeWord>(), N, static_cast<int>(C), W, static_cast<int>(a.form.largest));
    else
      decode_blocks_of_rows<S><<<blocks_for(N * C), kThreads, 0, native(stream)>>>(
          a.y.data<S>(), a.code.data<CodeWord>(), N * C, C, W, a.form.blocks);
  });
  check_launch("decode_rows");
}

}  // namespace lockstep::cuda
