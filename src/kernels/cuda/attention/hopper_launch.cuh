// What the host does before it launches one of Hopper's attention kernels: is it able to, and how are the operands
// described to the copy engine.
#pragma once
#include <cuda.h>

#include <initializer_list>
#include <string>

#include "kernels/attention.h"
#include "kernels/cuda/attention/hopper_sight.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda::hopper {

inline int attribute_of_gpu(cudaDeviceAttr attribute) {
  int gpu = 0, value = 0;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&value, attribute, gpu), "cudaDeviceGetAttribute");
  return value;
}

// "" or why this GPU, or this program on it, cannot run a kernel that has at least N registers per thread.
inline std::string unable(const void* kernel, int registers) {
  const int major = attribute_of_gpu(cudaDevAttrComputeCapabilityMajor);
  const int minor = attribute_of_gpu(cudaDevAttrComputeCapabilityMinor);
  if (major != 9 || minor != 0)
    return fmt::format("it is for GPUs of compute capability 9.0, and this one has {}.{}", major, minor);
  const char* const no_code = "this program was built without code for sm_90a";
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    return no_code;
  }
  check_cuda(status, "cudaFuncGetAttributes");
  return attributes.numRegs >= registers ? "" : no_code;  // built for another target, the kernel is empty
}

struct Named {
  const char* name;
  ConstTensor tensor;
};

// "" or why copies of 16 bytes cannot read or write one of these.
inline std::string unsuitable(std::initializer_list<Named> operands) {
  for (const auto& [name, t] : operands) {
    if (reinterpret_cast<std::uintptr_t>(t.raw()) % 16 != 0)
      return fmt::format("{} does not begin at a multiple of 16 bytes", name);
    for (int i = 0; i < 3; ++i)
      if (t.dim(i) > 1 && t.stride(i) % 8 != 0)
        return fmt::format("{} has a stride of {} elements, no multiple of 8", name, t.stride(i));
  }
  return "";
}

template <class Args>
AttentionSizes sizes_of(const Args& a) {
  return {.B = a.q.dim(0),
          .T = a.q.dim(1),
          .S = a.k.dim(1),
          .H = a.q.dim(2),
          .K = a.k.dim(2),
          .D = a.q.dim(3),
          .dtype = a.q.dtype(),
          .causal = a.causal,
          .dropout = a.dropout.probability > 0,
          .documents = bool(a.documents.starts)};
}

template <class Args>
Sight sight_of(const Args& a) {
  const ConstTensor& starts = a.documents.starts;
  return {.starts = starts ? starts.template data<std::int32_t>() : nullptr,
          .starts_sample = starts ? starts.stride(0) : 0,
          .first_key = static_cast<int>(a.documents.first_key),
          .queries = static_cast<int>(a.q.dim(1)),
          .keys = static_cast<int>(a.k.dim(1)),
          .causal = a.causal};
}

inline Strides strides_of(const ConstTensor& t) {
  return {.sample = t.stride(0), .token = t.stride(1), .head = t.stride(2)};
}
inline const __nv_bfloat16* data_of(const ConstTensor& t) { return static_cast<const __nv_bfloat16*>(t.raw()); }
inline __nv_bfloat16* data_of(const Tensor& t) { return static_cast<__nv_bfloat16*>(t.raw()); }

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's own library is not linked, so that the program starts where there is none.
inline Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
             "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled)");
  if (result != cudaDriverEntryPointSuccess || !found)
    throw EnvironmentError("the GPU's driver has no tensor maps; install one of CUDA 12.0 or newer");
  return reinterpret_cast<Encode>(found);
}

// Boxes of `rows` tokens by 64 columns of one head of (B, T, heads, D).
inline CUtensorMap map_of(Encode encode, const ConstTensor& t, int rows) {
  const auto extent = [&](int dim) { return static_cast<cuuint64_t>(t.dim(dim)); };
  // Of a dim of one, which no step is taken along, any stride will do that the driver takes.
  const auto bytes = [&](int dim) { return static_cast<cuuint64_t>(2 * (t.dim(dim) > 1 ? t.stride(dim) : t.dim(3))); };
  const cuuint64_t dims[] = {extent(3), extent(1), extent(2), extent(0)}, strides[] = {bytes(1), bytes(2), bytes(0)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(rows), 1, 1}, every[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(t.raw()), dims, strides,
                                 box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw EnvironmentError(fmt::format("cuTensorMapEncodeTiled failed with {} for {} by strides ({}, {}, {})",
                                       static_cast<int>(status), t.shape(), t.stride(0), t.stride(1), t.stride(2)));
  return map;
}

}  // namespace lockstep::cuda::hopper
