// How much of a model is gathered, and its gradients reduced, in one call (ZeRO 3).
//
// Less than a block: its two halves, attention and feed-forward, each with its norm, are units of their own
// (spec/model/model_units.h), each with a shard, phases and messages of its own. Or several blocks, which are a bundle.
// A bundle is about messages alone: what a rank holds and updates stays one shard per unit. Sums are the same under any
// rule, and a checkpoint, which knows tensors and not units, resumes under any other. The embedding and the head are
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

// `wrap` of a layout: "block", "halves", the least size of a bundle, as in "64MiB", or the blocks of each bundle, as in
// "2+3+3".
struct WrapRule {
  enum class Form { block, halves, size, blocks };
  Form form = Form::block;
  std::int64_t mebibytes = 0;             // Form::size: of gathered weights, 1 or more
  std::vector<std::int64_t> blocks = {};  // Form::blocks: of each bundle, 1 or more

  static WrapRule of_size(std::int64_t mebibytes) { return {.form = Form::size, .mebibytes = mebibytes}; }
  static WrapRule of_blocks(std::vector<std::int64_t> blocks) {
    return {.form = Form::blocks, .blocks = std::move(blocks)};
  }

  static WrapRule of_halves() { return {.form = Form::halves}; }
  bool is_of_halves() const { return form == Form::halves; }

  // Nothing where the text is not one of the four.
  static std::optional<WrapRule> parse(std::string_view text);
  std::string text() const;
  static constexpr std::string_view kRemedy =
      "use \"block\", \"halves\", a least size as in \"64MiB\", or the blocks of each call by hand, as in \"4+4\"";

  bool operator==(const WrapRule&) const = default;
};

// By unit (embedding, blocks or their halves, head): the first unit of its bundle. `unit_bytes`: of gathered weights.
// Blocks by hand are of that many units; a bundle by size takes the next block until it has that size.
std::vector<int> bundles_of(const WrapRule& rule, const Stages& stages, std::span<const std::int64_t> unit_bytes);

}  // namespace lockstep
