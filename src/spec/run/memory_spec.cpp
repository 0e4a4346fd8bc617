#include "spec/run/memory_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spec/layout/stage_rule.h"

namespace lockstep {

std::optional<StageBlocks> StageBlocks::parse(std::string_view text) {
  std::optional<std::vector<std::int64_t>> counts = parse_joined(text);
  return counts ? std::optional(StageBlocks{std::move(*counts)}) : std::nullopt;
}

std::string StageBlocks::text() const { return fmt::format("{}", fmt::join(counts, "+")); }

}  // namespace lockstep
