// Attention's backward for Hopper: one kernel over the tiles, between two that only move memory.
#include "kernels/cuda/attention/hopper_attention_compute.cuh"
#include "kernels/cuda/attention/hopper_attention_ends.cuh"
#include "kernels/cuda/attention/hopper_attention_feed.cuh"
#include "kernels/cuda/attention/hopper_launch.cuh"

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
  const Part found = part_of<Tile>(call, static_cast<int>(shared.block));
  if (threadIdx.x == 0) shared.part = found;
  __syncthreads();
  const Part& part = shared.part;
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

template <class Tile>
void launch(const AttentionBackwardArgs& a, const HopperReserve& reserve, cudaStream_t stream) {
  const auto size = [&](int dim) { return static_cast<int>(a.q.dim(dim)); };
  const int B = size(0), T = size(1), H = size(2), K = static_cast<int>(a.k.dim(2));
  const Sight sight = sight_of(a);
  const int tiles = static_cast<int>(ceil_div(T, Tile::kQueries)), padded = tiles * Tile::kQueries;
  const std::int64_t rows = std::int64_t{B} * H * padded, parts = std::int64_t{2} * B * H * tiles;
  auto* const workspace = static_cast<std::byte*>(a.workspace.raw());
  auto* const dq = reinterpret_cast<float*>(workspace);
  auto* const lse = reinterpret_cast<float*>(workspace + reserve.dq);
  auto* const delta = reinterpret_cast<float*>(workspace + reserve.dq + reserve.statistics / 2);
  auto* const turns = reinterpret_cast<unsigned*>(workspace + reserve.dq + reserve.statistics);
  auto* const first =
      reserve.first ? reinterpret_cast<int*>(workspace + reserve.dq + reserve.statistics + reserve.turns) : nullptr;
  const float scale = static_cast<float>(a.scale);

  const BeginCall begin{.d_o = data_of(a.d_o),
                        .o = data_of(a.o),
                        .of_do = strides_of(a.d_o),
                        .of_o = strides_of(a.o),
                        .lse_given = a.lse.data<float>(),
                        .lse = lse,
                        .delta = delta,
                        .first = first,
                        .turns = turns,
                        .turn_count = parts + 1,
                        .sight = sight,
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
                          .first = first,
                          .dq = dq,
                          .turns = turns,
                          .next_block = turns + parts,
                          .dk = data_of(a.dk),
                          .dv = data_of(a.dv),
                          .of_dk = strides_of(a.dk),
                          .of_dv = strides_of(a.dv),
                          .sight = sight,
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
  const auto blocks = static_cast<unsigned>(ceil_div(sight.keys, Tile::kKeys) * B * K);
  run_tiles<Tile><<<blocks, Tile::kThreads, kShared, stream>>>(call);
  check_launch("attention_backward: its tiles");

  const EndCall end{.sums = dq,
                    .dq = data_of(a.dq),
                    .strides = strides_of(a.dq),
                    .sight = sight,
                    .tiles = tiles,
                    .heads = H,
                    .scale = scale};
  end_backward<Tile><<<static_cast<unsigned>(parts), 256, 0, stream>>>(end);
  check_launch("attention_backward: its dq");
}

}  // namespace
}  // namespace hopper

std::string hopper_attention_backward(const AttentionBackwardArgs& a, lockstep::Stream& stream) {
  const AttentionSizes sizes = hopper::sizes_of(a);
  if (const char* reason = why_not_hopper(sizes)) return reason;
  std::string reason = hopper::unsuitable(
      {{"q", a.q}, {"k", a.k}, {"v", a.v}, {"o", a.o}, {"d_o", a.d_o}, {"dq", a.dq}, {"dk", a.dk}, {"dv", a.dv}});
  if (!reason.empty()) return reason;
  const HopperReserve reserve = hopper_reserve(sizes);
  if (!a.workspace || reinterpret_cast<std::uintptr_t>(a.workspace.raw()) % 16 != 0 ||
      a.workspace.bytes() < reserve.total())
    return fmt::format("it needs {} bytes of workspace, at a multiple of 16", reserve.total());
  reason = hopper::unable(sizes.D == 64 ? reinterpret_cast<const void*>(&hopper::run_tiles<hopper::BackwardTile<64>>)
                                        : reinterpret_cast<const void*>(&hopper::run_tiles<hopper::BackwardTile<128>>),
                          hopper::kEven);
  if (!reason.empty()) return reason;
  if (sizes.D == 64)
    hopper::launch<hopper::BackwardTile<64>>(a, reserve, native(stream));
  else
    hopper::launch<hopper::BackwardTile<128>>(a, reserve, native(stream));
  return "";
}

}  // namespace lockstep::cuda
