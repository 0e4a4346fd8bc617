// Which activations and gathered weights a run keeps from the forward to the backward ([memory] in the run file).
//
// Nothing of this changes a result: what is recomputed is equal bit for bit. model/recompute.h says what each level
// keeps of a block, and what that costs.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Recompute {
  none,         // everything is kept
  elementwise,  // outputs of norms and of the activation function are recomputed: passes over memory, no product
  projections,  // and the projections into attention and into the feed-forward part: all but attention itself
  full,         // everything: a block keeps its input alone
};
inline constexpr std::array kRecomputes{Recompute::none, Recompute::elementwise, Recompute::projections,
                                        Recompute::full};

constexpr std::string_view name_of(Recompute what) {
  constexpr std::string_view kNames[] = {"none", "elementwise", "projections", "full"};
  return kNames[static_cast<std::size_t>(what)];
}

// Whether a level computes products twice: some blocks may do that, and the others as "elementwise".
constexpr bool recomputes_products(Recompute level) { return level >= Recompute::projections; }

// How many blocks of each stage of a pipeline, from its first: "4+2+0".
struct StageBlocks {
  std::vector<std::int64_t> counts;  // by stage; empty: nothing is said

  // The text of numbers joined by "+"; nothing for another.
  static std::optional<StageBlocks> parse(std::string_view text);
  static constexpr std::string_view kRemedy = "name a number of blocks for each stage, as in \"4+2+0\"";
  std::string text() const;

  bool empty() const { return counts.empty(); }
  bool operator==(const StageBlocks&) const = default;
};

struct MemorySpec {
  Recompute recompute = Recompute::none;
  // Of a level that recomputes products, the blocks that do so.
  std::int64_t recompute_blocks = 0;  // the first of the model; 0 = all
  std::int64_t recompute_every = 1;   // of those, the first and every n-th after it
  StageBlocks recompute_stages = {};  // in the place of recompute_blocks: the first of each stage
  // MiB of gathered weights that may stay from the forward to the backward: as many units as fit, the last first
  std::int64_t gathered = 0;
  bool operator==(const MemorySpec&) const = default;
};

}  // namespace lockstep
