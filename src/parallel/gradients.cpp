#include "parallel/gradients.h"

#include <algorithm>

#include "parallel/ddp_buckets.h"
#include "parallel/offloaded_gradients.h"
#include "parallel/server_gradients.h"
#include "parallel/zero_gradients.h"

namespace lockstep {

std::unique_ptr<Gradients> make_gradients(const Gradients::Options& options, const LayoutSpec& layout,
                                          ZeroGroups& groups, Memory& memory, Stream& stream) {
  if (groups.servers() && groups.servers()->serves())
    return std::make_unique<ServerGradients>(options, groups, memory, stream);
  if (layout.passes_on()) return std::make_unique<ZeroGradients>(options, groups, memory, stream);
  if (!options.offloaded.empty()) {
    LOCKSTEP_CHECK(layout.replicas() == 1, "gradients of {} replicas are offloaded, and summed once per step",
                   layout.replicas());
    return std::make_unique<OffloadedGradients>(options, groups.shard(), memory, stream);
  }
  return std::make_unique<DdpBuckets>(options, DdpBuckets::Buckets{.bytes = layout.bucket << 20}, groups, memory,
                                      stream);
}

std::vector<CompressedSum::Range> parameter_ranges(const UnitLayout& layout) {
  std::vector<CompressedSum::Range> ranges;
  for (int p = 0; p < static_cast<int>(layout.parameters().size()); ++p) {
    const StoredParameter& stored = layout.parameters()[static_cast<std::size_t>(p)];
    if (!stored.tied && !stored.frozen) ranges.push_back({layout.offset(p), layout.offset(p) + stored.elements()});
  }
  std::ranges::sort(ranges, {}, &CompressedSum::Range::begin);
  return ranges;
}

std::vector<Tensor> parameters_in(const UnitLayout& layout, const Tensor& flat, const Tensor& tied) {
  std::vector<Tensor> all;
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const StoredParameter& stored = layout.parameters()[p];
    if (stored.frozen) {
      all.emplace_back();
      continue;
    }
    const std::int64_t offset = layout.offset(static_cast<int>(p));
    const Tensor part = stored.tied ? tied.slice(0, offset - layout.owned(), stored.elements())
                                    : flat.slice(0, offset, stored.elements());
    all.push_back(part.reshape(Shape(std::span(stored.shape))));
  }
  return all;
}

}  // namespace lockstep
