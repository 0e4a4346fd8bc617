// Memory over one step, drawn as SVG: bytes in use by tag from action to action below the phases of the step, when the
// most is in use, and what that is.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// A run of actions with one name: "F0" is the forward of micro-batch 0.
struct MemoryPhase {
  enum class Kind : std::uint8_t { forward, backward, update };
  Kind kind;
  std::string name;
  std::size_t first, last;  // actions
};

struct MemoryTimelinePicture {
  std::string title = {}, subtitle = {};
  struct Band {
    std::string name;
    std::vector<std::int64_t> bytes;  // by action
  };
  std::vector<Band> bands = {};           // the first one at the bottom
  std::vector<std::int64_t> held = {};    // by action: bytes that buffers have, in use or not
  std::vector<std::string> actions = {};  // what each is
  std::vector<MemoryPhase> phases = {};   // they have every action
  std::size_t peak = 0;                   // the action at which most is in use
  // The largest of what is in use then, with its band.
  struct Tensor {
    std::string what;
    std::size_t band;
    std::int64_t bytes;
  };
  std::vector<Tensor> tensors = {};
};

std::string memory_timeline_picture(const MemoryTimelinePicture& picture);

}  // namespace lockstep
