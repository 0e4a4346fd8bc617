#include "parallel/compressed_sum.h"

#include <algorithm>

#include "parallel/block_coded_sum.h"
#include "parallel/top_k_sum.h"

namespace lockstep {

std::vector<CompressedSum::Range> CompressedSum::within(const std::vector<Range>& parameters, std::int64_t begin,
                                                        std::int64_t end) {
  std::vector<Range> found;
  for (const Range& range : parameters) {
    const Range part{std::max(range.begin, begin), std::min(range.end, end)};
    if (part.begin < part.end) found.push_back(part);
  }
  return found;
}

std::unique_ptr<CompressedSum> make_compressed_sum(const CompressedSum::Options& options, CompressedSum::Groups groups,
                                                   Memory& memory, Stream& stream) {
  if (options.form.kind == Compression::Kind::topk) return std::make_unique<TopKSum>(options, groups, memory, stream);
  return std::make_unique<BlockCodedSum>(options, groups, memory, stream);
}

}  // namespace lockstep
