#include "parallel/global_norm.h"

#include <algorithm>
#include <utility>

#include "kernels/norm_sum.h"

namespace lockstep {

GlobalNorm::GlobalNorm(const std::vector<UnitStorage>& storage, const Gradients& gradients, Memory& memory)
    : bins_(memory.allocate(kNormBins * 8, Tag::workspace)) {
  for (std::size_t u = 0; u < storage.size(); ++u) {
    const Tensor all = gradients.reduced(static_cast<int>(u));
    std::vector<std::pair<std::int64_t, std::int64_t>> left_out;
    storage[u].each_piece([&](const UnitStorage::Piece& piece) {
      if (!piece.tensor.counted && piece.elements > 0)
        left_out.emplace_back(piece.offset, piece.offset + piece.elements);
    });
    std::ranges::sort(left_out);
    left_out.emplace_back(all.elements(), 0);
    std::int64_t begin = 0;
    for (const auto& [from, to] : left_out) {
      if (from > begin) counted_.push_back(all.slice(0, begin, from - begin));
      begin = to;
    }
  }
  // The first one starts the sum.
  if (counted_.empty()) counted_.push_back(gradients.reduced(0).slice(0, 0, 0));
}

Tensor GlobalNorm::sum(ReplicaGroups& replicas, Communicator& layers, Stream& stream) const {
  const Tensor bins = view(bins_, DType::i64, {kNormBins});
  bool adds = false;
  for (const Tensor& part : counted_)
    norm_sum({.bins = bins, .x = part, .accumulate = std::exchange(adds, true)}, stream);
  if (replicas.cuts()) replicas.sharers().all_reduce(bins)->wait();
  if (layers.size() > 1) layers.all_reduce(bins)->wait();
  return bins;
}

}  // namespace lockstep
