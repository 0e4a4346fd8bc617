// Attention's backward for Hopper: one kernel over the tiles, between two that only move memory.
#include <initializer_list>

#include "kernels/cuda/attention/hopper_attention_compute.cuh"
#include "kernels/cuda/attention/hopper_attention_ends.cuh"
#include "kernels/cuda/attention/hopper_attention_feed.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

namespace hopper {
namespace {

// Registers of a thread, by what its warp group does. The block is given kThreads times what a thread could have if all
// had as many, and these two must not ask for more in sum.
constexpr int kFeeding = 24, kComputing = 240, kEven = 168;
static_assert(128 * (kFeeding + 2 * kComputing) <= 3 * 128 * kEven);

// On an H200 (132 multiprocessors, a block each) eight blocks of each chain then run together. With fewer, more comes
// from memory; with more, they wait longer for each other when they start.
constexpr int kChainsAtOnce = 16;

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) run_tiles(const __grid_constant__ BackwardCall call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  if (threadIdx.x == 0) {
    shared.start();
    shared.block = atomicAdd(call.next_block, 1u);
  }
  __syncthreads();
  const Part part = part_of<Tile>(call, static_cast<int>(shared.block));
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // known to be a warp's
  if (group == 0) {
    give_registers<kFeeding>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == 0) bring_tiles<Tile>(call, shared, part);
    if (warp == 1 || warp == 2) add_up_dq<Tile>(call, shared, part, warp - 1);
  } else {
    take_registers<kComputing>();
    Computer<Tile>(call, shared, part, group - 1).run();
  }
#endif
}

bool has_code(const void* kernel) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    return false;
  }
  check_cuda(status, "cudaFuncGetAttributes");
  return attributes.numRegs >= kEven;  // built for another target, the kernel is empty
}

int attribute_of_gpu(cudaDeviceAttr attribute) {
  int gpu = 0, value = 0;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&value, attribute, gpu), "cudaDeviceGetAttribute");
  return value;
}

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's own library is not linked, so that the program starts where there is none.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
             "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled)");
  if (result != cudaDriverEntryPointSuccess || !found)
    throw EnvironmentError("the GPU's driver has no tensor maps; install one of CUDA 12.0 or newer");
  return reinterpret_cast<Encode>(found);
}

// Boxes of `rows` tokens by 64 columns of one head of (B, T, heads, D).
CUtensorMap map_of(Encode encode, const ConstTensor& t, int rows) {
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

BackwardCall::Strides strides_of(const ConstTensor& t) {
  return {.sample = t.stride(0), .token = t.stride(1), .head = t.stride(2)};
}
const __nv_bfloat16* data_of(const ConstTensor& t) { return static_cast<const __nv_bfloat16*>(t.raw()); }
__nv_bfloat16* data_of(const Tensor& t) { return static_cast<__nv_bfloat16*>(t.raw()); }

template <class Tile>
void launch(const AttentionBackwardArgs& a, const HopperReserve& reserve, cudaStream_t stream) {
  const auto size = [&](int dim) { return static_cast<int>(a.q.dim(dim)); };
  const int B = size(0), T = size(1), H = size(2), K = static_cast<int>(a.k.dim(2));
  const int tiles = static_cast<int>(ceil_div(T, Tile::kQueries)), padded = tiles * Tile::kQueries;
  const std::int64_t rows = std::int64_t{B} * H * padded, parts = std::int64_t{2} * B * H * tiles;
  auto* const workspace = static_cast<std::byte*>(a.workspace.raw());
  auto* const dq = reinterpret_cast<float*>(workspace);
  auto* const lse = reinterpret_cast<float*>(workspace + reserve.dq);
  auto* const delta = reinterpret_cast<float*>(workspace + reserve.dq + reserve.statistics / 2);
  auto* const turns = reinterpret_cast<unsigned*>(workspace + reserve.dq + reserve.statistics);
  const float scale = static_cast<float>(a.scale);

  const BeginCall begin{.d_o = data_of(a.d_o),
                        .o = data_of(a.o),
                        .of_do = strides_of(a.d_o),
                        .of_o = strides_of(a.o),
                        .lse_given = a.lse.data<float>(),
                        .lse = lse,
                        .delta = delta,
                        .turns = turns,
                        .turn_count = parts + 1,
                        .tokens = T,
                        .padded = padded,
                        .heads = H,
                        .rows = rows};
  begin_backward<Tile><<<static_cast<unsigned>(ceil_div(rows * (Tile::kWidth / 8), 256)), 256, 0, stream>>>(begin);
  check_launch("attention_backward: its statistics");

  const Encode encode = find_encode();
  const BackwardCall call{.q = map_of(encode, a.q, Tile::kQueries),
                          .k = map_of(encode, a.k, Tile::kKeys),
                          .v = map_of(encode, a.v, Tile::kKeys),
                          .d_o = map_of(encode, a.d_o, Tile::kQueries),
                          .lse = lse,
                          .delta = delta,
                          .dq = dq,
                          .turns = turns,
                          .next_block = turns + parts,
                          .dk = data_of(a.dk),
                          .dv = data_of(a.dv),
                          .of_dk = strides_of(a.dk),
                          .of_dv = strides_of(a.dv),
                          .tokens = T,
                          .tiles = tiles,
                          .samples = B,
                          .key_heads = K,
                          .group = H / K,
                          .round = kChainsAtOnce,
                          .scale = scale,
                          .scale_log2 = static_cast<float>(a.scale * 1.4426950408889634)};
  constexpr int kShared = sizeof(typename Tile::Shared);
  check_cuda(cudaFuncSetAttribute(run_tiles<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
             "cudaFuncSetAttribute");
  const auto blocks = static_cast<unsigned>(ceil_div(T, Tile::kKeys) * B * K);
  run_tiles<Tile><<<blocks, Tile::kThreads, kShared, stream>>>(call);
  check_launch("attention_backward: its tiles");

  const EndCall end{.sums = dq,
                    .dq = data_of(a.dq),
                    .strides = strides_of(a.dq),
                    .tokens = T,
                    .tiles = tiles,
                    .heads = H,
                    .scale = scale};
  end_backward<Tile><<<static_cast<unsigned>(parts), 256, 0, stream>>>(end);
  check_launch("attention_backward: its dq");
}

// "" or why this GPU, or this program on it, cannot.
std::string unable(std::int64_t width) {
  const int major = attribute_of_gpu(cudaDevAttrComputeCapabilityMajor);
  const int minor = attribute_of_gpu(cudaDevAttrComputeCapabilityMinor);
  if (major != 9 || minor != 0)
    return fmt::format("it is for GPUs of compute capability 9.0, and this one has {}.{}", major, minor);
  if (!has_code(width == 64 ? reinterpret_cast<const void*>(&run_tiles<BackwardTile<64>>)
                            : reinterpret_cast<const void*>(&run_tiles<BackwardTile<128>>)))
    return "this program was built without code for sm_90a";
  return "";
}

struct Named {
  const char* name;
  ConstTensor tensor;
};

// "" or why copies of 16 bytes cannot read or write one of these.
std::string unsuitable(std::initializer_list<Named> operands) {
  for (const auto& [name, t] : operands) {
    if (reinterpret_cast<std::uintptr_t>(t.raw()) % 16 != 0)
      return fmt::format("{} does not begin at a multiple of 16 bytes", name);
    for (int i = 0; i < 3; ++i)
      if (t.dim(i) > 1 && t.stride(i) % 8 != 0)
        return fmt::format("{} has a stride of {} elements, no multiple of 8", name, t.stride(i));
  }
  return "";
}

}  // namespace
}  // namespace hopper

std::string hopper_attention_backward(const AttentionBackwardArgs& a, lockstep::Stream& stream) {
  const AttentionSizes sizes{.B = a.q.dim(0),
                             .T = a.q.dim(1),
                             .S = a.k.dim(1),
                             .H = a.q.dim(2),
                             .K = a.k.dim(2),
                             .D = a.q.dim(3),
                             .dtype = a.q.dtype(),
                             .causal = a.causal,
                             .dropout = a.dropout.probability > 0,
                             .deterministic = a.deterministic,
                             .documents = bool(a.documents.starts)};
  if (const char* reason = why_not_hopper(sizes)) return reason;
  std::string reason = hopper::unsuitable(
      {{"q", a.q}, {"k", a.k}, {"v", a.v}, {"o", a.o}, {"d_o", a.d_o}, {"dq", a.dq}, {"dk", a.dk}, {"dv", a.dv}});
  if (!reason.empty()) return reason;
  const HopperReserve reserve = hopper_reserve(sizes);
  if (!a.workspace || reinterpret_cast<std::uintptr_t>(a.workspace.raw()) % 16 != 0 ||
      a.workspace.bytes() < reserve.total())
    return fmt::format("it needs {} bytes of workspace, at a multiple of 16", reserve.total());
  reason = hopper::unable(sizes.D);
  if (!reason.empty()) return reason;
  if (sizes.D == 64)
    hopper::launch<hopper::BackwardTile<64>>(a, reserve, native(stream));
  else
    hopper::launch<hopper::BackwardTile<128>>(a, reserve, native(stream));
  return "";
}

}  // namespace lockstep::cuda
