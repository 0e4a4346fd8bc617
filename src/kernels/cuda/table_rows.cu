#include "kernels/table_rows.h"

#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

namespace {

// Rows as words of their elements' size: nothing is computed with them. A block takes a row, kThreads words at a time.
template <class Word, bool Gathers>
__global__ void __launch_bounds__(kThreads)
    copy_rows(Word* to, const Word* from, const std::int32_t* rows, std::int64_t n, std::int64_t V, std::int64_t C) {
  for (std::int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const std::int64_t row = rows[i];
    if (row < 0 || row >= V) continue;
    const std::int64_t into = (Gathers ? i : row) * C, out_of = (Gathers ? row : i) * C;
    for (std::int64_t c = threadIdx.x; c < C; c += kThreads) to[into + c] = from[out_of + c];
  }
}

template <bool Gathers>
void copy_listed(const Tensor& to, const ConstTensor& from, const ConstTensor& rows, std::int64_t V,
                 lockstep::Stream& stream) {
  const std::int64_t n = rows.elements(), C = to.dim(1);
  if (n == 0 || C == 0) return;
  const auto launch = [&](auto of) {
    using Word = decltype(of);
    copy_rows<Word, Gathers><<<blocks_for(n, 1), kThreads, 0, native(stream)>>>(
        static_cast<Word*>(to.raw()), static_cast<const Word*>(from.raw()), rows.data<std::int32_t>(), n, V, C);
  };
  switch (size_of(to.dtype())) {
    case 2:
      launch(std::uint16_t{});
      break;
    case 4:
      launch(std::uint32_t{});
      break;
    default:
      launch(std::uint64_t{});
  }
  check_launch(Gathers ? "gather_rows" : "scatter_rows");
}

}  // namespace

void gather_rows(const GatherRowsArgs& a, lockstep::Stream& stream) {
  copy_listed<true>(a.y, a.table, a.rows, a.table.dim(0), stream);
}

void scatter_rows(const ScatterRowsArgs& a, lockstep::Stream& stream) {
  copy_listed<false>(a.table, a.x, a.rows, a.table.dim(0), stream);
}

}  // namespace lockstep::cuda
