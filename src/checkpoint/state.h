// The state of a training run, as a checkpoint holds it: pieces of logical tensors, and where the run stands.
//
// Plain data. A logical tensor is known by its part and its Hugging Face name and has a global shape; where its
// elements live, in how many pieces and under which layout, is not part of it. So what one layout saved, any other
// loads.
#pragma once
#include <cstdint>
#include <string>

#include "spec/parameters.h"
#include "tensor/tensor.h"

namespace lockstep {

// One rank's part of one logical tensor of the training state. A view: whoever made it owns the elements.
struct StateTensor {
  std::string part;        // "weight" (master weights), "m", "v" (AdamW), "momentum" (SGD): [a-z0-9_]
  LogicalTensor tensor;    // Hugging Face's name, the global shape
  std::int64_t begin = 0;  // flat range [begin, begin + live.elements()) of the global tensor that lives here
  Tensor live;             // 1-D contiguous, any device; a float type
};

// Everything else a run needs to go on exactly.
struct Progress {
  std::int64_t step = 0;     // training steps done
  std::int64_t updates = 0;  // optimizer updates done (a step whose norm was not finite has none)
  std::int64_t samples = 0;  // samples consumed: the sampler's whole state
  std::uint64_t seed = 0;    // of everything random
  std::uint64_t data_fingerprint = 0;
  std::string run_file;  // the resolved run file, TOML text
  bool operator==(const Progress&) const = default;
};

// The part whose tensors are the model itself. Only it may be loaded in another element type than it was saved in.
inline constexpr const char* kWeightPart = "weight";

}  // namespace lockstep
