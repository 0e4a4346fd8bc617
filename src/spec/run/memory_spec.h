// Which activations and gathered weights a run keeps from the forward to the backward, and what is offloaded from the
// device's memory while it is not used ([memory] in the run file).
//
// Nothing of this changes a result: what is recomputed is equal bit for bit, and so is what is brought back.
// model/recompute.h says what each level keeps of a block, and what that costs; offload/ moves what is offloaded.
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
// Where state is between its uses.
enum class Offload {
  none,  // in the device's memory, where it is used
  host,  // in the host's memory, of a GPU
  disk,  // in a file
};
inline constexpr std::array kOffloads{Offload::none, Offload::host, Offload::disk};

constexpr std::string_view name_of(Offload where) {
  return where == Offload::none ? "none" : where == Offload::host ? "host" : "disk";
}

// Where the update of state that is offloaded to the host runs.
enum class OffloadUpdate {
  choose,  // where it is faster, which a run measures when it begins ("auto")
  device,  // the state is brought
  host,    // on the host's cores: gradients are brought
};
inline constexpr std::array kOffloadUpdates{OffloadUpdate::choose, OffloadUpdate::device, OffloadUpdate::host};

constexpr std::string_view name_of(OffloadUpdate where) {
  return where == OffloadUpdate::choose ? "auto" : where == OffloadUpdate::device ? "device" : "host";
}
// As many units stay gathered as fit; a program that runs chooses the number (plan/gathered_room.h).
inline constexpr std::int64_t kGatheredAuto = -1;

struct MemorySpec {
  Recompute recompute = Recompute::none;
  // Of a level that recomputes products, the blocks that do so.
  std::int64_t recompute_blocks = 0;  // the first of the model; 0 = all
  std::int64_t recompute_every = 1;   // of those, the first and every n-th after it
  StageBlocks recompute_stages = {};  // in the place of recompute_blocks: the first of each stage
  // MiB of gathered weights that may stay from the forward to the backward: as many units as fit, the last first;
  // or kGatheredAuto
  std::int64_t gathered = 0;
  Offload offload_optimizer = Offload::none;   // master weights and moments
  Offload offload_gradients = Offload::none;   // that are summed, or their shards
  Offload offload_parameters = Offload::none;  // the weights that kernels read, of zero = 3
  double offload_share = 1;                    // of the bytes of such state, by whole units, the last first
  std::int64_t offload_window = 64;            // MiB that are brought to the device at a time
  OffloadUpdate offload_update =
      OffloadUpdate::choose;                    // of state on the host; until one is chosen, the device does it
  std::string offload_folder = {};              // where the file is; empty: in the run's folder
  Offload offload_activations = Offload::none;  // what blocks keep from their forward to their backward
  std::int64_t offload_blocks = 0;              // whose: the first of each stage; 0 = all
  bool operator==(const MemorySpec&) const = default;

  // Where what is offloaded is: a run's kinds of it are in one place.
  Offload offloads_to() const {
    for (const Offload kind : {offload_optimizer, offload_gradients, offload_parameters, offload_activations})
      if (kind != Offload::none) return kind;
    return Offload::none;
  }
  bool updates_on_host() const { return offload_optimizer == Offload::host && offload_update == OffloadUpdate::host; }
  bool offloads_state() const {  // of units, more than activations
    return offload_optimizer != Offload::none || offload_gradients != Offload::none ||
           offload_parameters != Offload::none;
  }
};

}  // namespace lockstep
