#include "parallel/global_norm.h"

#include <algorithm>
#include <utility>

#include "kernels/norm_sum.h"

namespace lockstep {

GlobalNorm::GlobalNorm(const std::map<int, ZeroShard>& storage, const Gradients& gradients, Memory& memory)
    : bins_(memory.allocate(kNormBins * 8, Tag::workspace)) {
  for (const auto& [u, unit] : storage) {
    if (!unit.updates()) continue;
    const Tensor all = gradients.reduced(u);
    if (gradients.is_offloaded(u)) offloaded_[u] = {};  // also where nothing of it is counted: windows come in order
    std::vector<std::pair<std::int64_t, std::int64_t>> left_out;
    unit.each_piece([&](const ZeroShard::Piece& piece) {
      if (!piece.tensor.counted && piece.elements > 0)
        left_out.emplace_back(piece.offset, piece.offset + piece.elements);
    });
    std::ranges::sort(left_out);
    left_out.emplace_back(all.elements(), 0);
    std::int64_t begin = 0;
    for (const auto& [from, to] : left_out) {
      if (from > begin && gradients.is_offloaded(u))
        offloaded_[u].push_back({begin, from});
      else if (from > begin)
        counted_.push_back(all.slice(0, begin, from - begin));
      begin = to;
    }
  }
  // The first one starts the sum.
  if (counted_.empty()) counted_.push_back(view(bins_, DType::f32, {0}));
}

Tensor GlobalNorm::sum(ZeroGroups& replicas, Communicator& layers, Communicator& stages, Stream& stream,
                       const EachWindow& each_window) const {
  const Tensor bins = view(bins_, DType::i64, {kNormBins});
  bool adds = false;
  for (const Tensor& part : counted_)
    norm_sum({.bins = bins, .x = part, .accumulate = std::exchange(adds, true)}, stream);
  // Windows begin and end at multiples of a block, and so do parameters: the blocks are the same.
  for (const auto& [unit, ranges] : offloaded_)
    each_window(unit, [&, &ranges = ranges](std::int64_t begin, const Tensor& part, Stream& brought_in) {
      for (const Range& range : ranges) {
        const std::int64_t from = std::max(range.begin, begin), to = std::min(range.end, begin + part.elements());
        if (from < to)
          norm_sum({.bins = bins, .x = part.slice(0, from - begin, to - from), .accumulate = true}, brought_in);
      }
    });
  if (replicas.sharded()) replicas.sharers().all_reduce(bins)->wait();
  for (Communicator* others : {&layers, &stages})
    if (others->size() > 1) others->all_reduce(bins)->wait();
  return bins;
}

}  // namespace lockstep
