#include "parallel/weight_versions.h"

#include "kernels/elementwise.h"

namespace lockstep {

WeightVersions::WeightVersions(int places, const std::map<int, ZeroShard>& storage,
                               const std::map<int, std::vector<ConstTensor>>& whole, Memory& memory, Stream& stream)
    : places_(places), storage_(storage), stream_(stream), current_(whole) {
  for (const auto& [u, shard] : storage) {
    newest_[u] = 0;
    const Tensor weights = shard.flat_weight();
    const std::int64_t elements = weights.elements();
    if (places == 0) continue;
    const Buffer& buffer = buffers_.emplace_back(memory.allocate(
        places * elements * size_of(weights.dtype()), Tag::parameter, shard.layout().name() + std::string(kRow)));
    for (int i = 0; i < places; ++i) {
      const Tensor flat = flat_[u].emplace_back(view(buffer, weights.dtype(), {elements}, i * elements));
      std::vector<ConstTensor>& views = stashed_[u].emplace_back();
      for (int p = 0; p < static_cast<int>(shard.layout().parameters().size()); ++p) {
        const StoredParameter& stored = shard.layout().parameters()[static_cast<std::size_t>(p)];
        views.push_back(
            flat.slice(0, shard.layout().offset(p), stored.elements()).reshape(Shape(std::span(stored.shape))));
      }
    }
  }
}

void WeightVersions::begin_window() {
  for (auto& [u, version] : newest_) version = 0;
}

void WeightVersions::stash(int unit, std::int64_t version) {
  cast({.y = flat_.at(unit)[place(version)], .x = storage_.at(unit).flat_weight()}, stream_);
}

const std::vector<ConstTensor>& WeightVersions::weights(int unit, std::int64_t version) const {
  if (version == newest_.at(unit)) return current_.at(unit);
  return stashed_.at(unit)[place(version)];
}

}  // namespace lockstep
