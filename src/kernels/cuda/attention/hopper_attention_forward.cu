// Attention's forward for Hopper.
#include <algorithm>

#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/cuda/attention/hopper_forward_tiles.cuh"
#include "kernels/cuda/attention/hopper_launch.cuh"

namespace lockstep::cuda {

namespace hopper {
namespace {

// Three groups have registers for heads of 64 only.
template <int kWidth>
using WidthsTile = ForwardTile<kWidth, kWidth == 64 ? 3 : 2>;

template <class Tile>
std::string run_forward(const AttentionForwardArgs& a, cudaStream_t stream) {
  using Registers = ForwardRegisters<Tile::kGroups>;
  const void* const kernel = reinterpret_cast<const void*>(&forward_tiles<Tile>);
  if (std::string reason = unable(kernel, Registers::kEven); !reason.empty()) return reason;
  const Encode encode = find_encode();
  const std::int64_t B = a.q.dim(0), T = a.q.dim(1), H = a.q.dim(2), K = a.k.dim(2);
  const ForwardCall call{.q = map_of(encode, a.q, Tile::kQueries),
                         .k = map_of(encode, a.k, Tile::kKeys),
                         .v = map_of(encode, a.v, Tile::kKeys),
                         .o = data_of(a.o),
                         .of_o = strides_of(a.o),
                         .lse = a.lse.data<float>(),
                         .sight = sight_of(a),
                         .samples = static_cast<int>(B),
                         .tiles = static_cast<int>(ceil_div(T, Tile::kQueries)),
                         .heads = static_cast<int>(H),
                         .group = static_cast<int>(H / K),
                         .scale = static_cast<float>(a.scale),
                         .scale_log2 = static_cast<float>(a.scale * 1.4426950408889634)};
  constexpr int kShared = sizeof(typename Tile::Shared);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
             "cudaFuncSetAttribute");
  const auto blocks = static_cast<unsigned>(
      std::min<std::int64_t>(ceil_div(T, Tile::kQueries) * B * H, attribute_of_gpu(cudaDevAttrMultiProcessorCount)));
  forward_tiles<Tile><<<blocks, Tile::kThreads, kShared, stream>>>(call);
  check_launch("attention_forward: its tiles");
  return "";
}

}  // namespace
}  // namespace hopper

std::string hopper_attention_forward(const AttentionForwardArgs& a, lockstep::Stream& stream) {
  const AttentionSizes sizes = hopper::sizes_of(a);
  if (const char* reason = why_not_hopper(sizes)) return reason;
  if (a.scale <= 0) return "it is for positive scales";  // the largest score is that of the largest product
  std::string reason = hopper::unsuitable({{"q", a.q}, {"k", a.k}, {"v", a.v}, {"o", a.o}});
  if (!reason.empty()) return reason;
  return sizes.D == 64 ? hopper::run_forward<hopper::WidthsTile<64>>(a, native(stream))
                       : hopper::run_forward<hopper::WidthsTile<128>>(a, native(stream));
}

}  // namespace lockstep::cuda
