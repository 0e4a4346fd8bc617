// Which blocks are gathered, and their gradients reduced, in one call (ZeRO 3).
//
// Such blocks are a bundle. A bundle is about messages alone: what a rank holds, updates and saves stays one shard per
// unit, so a checkpoint of one rule resumes under any other, and sums are the same. The embedding and the head are
// bundles of their own, since a tied table is theirs, and a bundle ends where a chunk of a pipeline stage ends.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/layout/stages.h"

namespace lockstep {

// `wrap` of a layout: "block", the least size of a bundle, as in "64MiB", or the blocks of each bundle, as in "2+3+3".
struct WrapRule {
  enum class Form { block, size, blocks };
  Form form = Form::block;
  std::int64_t mebibytes = 0;             // Form::size: of gathered weights, 1 or more
  std::vector<std::int64_t> blocks = {};  // Form::blocks: of each bundle, 1 or more

  static WrapRule of_size(std::int64_t mebibytes) { return {.form = Form::size, .mebibytes = mebibytes}; }
  static WrapRule of_blocks(std::vector<std::int64_t> blocks) {
    return {.form = Form::blocks, .blocks = std::move(blocks)};
  }

  // Nothing where the text is not one of the three.
  static std::optional<WrapRule> parse(std::string_view text);
  std::string text() const;
  static constexpr std::string_view kRemedy =
      "use \"block\", a least size as in \"64MiB\", or the blocks of each call by hand, as in \"4+4\"";

  bool operator==(const WrapRule&) const = default;
};

// By unit (embedding, blocks, head): the first unit of its bundle. `unit_bytes`: of gathered weights. Blocks by hand
// are of that many units; a bundle by size takes the next block until it has that size.
std::vector<int> bundles_of(const WrapRule& rule, const Stages& stages, std::span<const std::int64_t> unit_bytes);

}  // namespace lockstep
