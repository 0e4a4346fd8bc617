// The state of a training run, as a checkpoint holds it: pieces of logical tensors, and the run's progress.
//
// Plain data. A logical tensor is known by its part and its Hugging Face name and has a global shape; where its
// elements live, in how many pieces and under which layout, is not part of it. So what one layout saved, any other
// loads.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/strided_range.h"
#include "spec/model/parameters.h"
#include "spec/model/precision.h"
#include "tensor/tensor.h"

namespace lockstep {

// One rank's part of one logical tensor of the training state. A view: whoever made it owns the elements.
//
// `range` says which elements of the global tensor, flattened row-major, live here. Rows that lie apart in it are the
// columns of a matrix; `live` holds the same rows one after the other. All pieces of a tensor whose rows lie apart have
// one pitch: that of whoever saves it; whoever loads it may have another.
struct StateTensor {
  std::string part;      // "weight" (master weights), "m", "v" (AdamW), "momentum" (SGD), "residual": [a-z0-9_]
  LogicalTensor tensor;  // Hugging Face's name, the global shape
  StridedRange range;    // its pitch is not below its row
  // A float type, any device, as many elements as the range has. 1-D contiguous, or the rows as (rows, row), which may
  // lie apart here too.
  Tensor live;
};

// Of a run that leaves out the batches of loss spikes (train/loss_spikes.h).
struct LossSpikeState {
  std::vector<std::int64_t> skipped;  // the first sample of each batch that was left out, in the order of the rewinds
  std::vector<double> losses;         // of the last steps, the oldest first: what the next one is compared with
  bool operator==(const LossSpikeState&) const = default;
};

// Everything else a run needs to resume exactly.
struct Progress {
  std::int64_t step = 0;     // training steps done
  std::int64_t updates = 0;  // optimizer updates done (a step whose norm was not finite has none)
  std::int64_t samples = 0;  // samples consumed: the sampler's whole state
  std::uint64_t seed = 0;    // of everything random
  std::uint64_t data_fingerprint = 0;
  std::string run_file;                           // the resolved run file, TOML text
  std::optional<LossScaleState> loss_scale = {};  // of a run whose loss scale is dynamic
  std::optional<LossSpikeState> spikes = {};      // of a run that rewinds
  bool operator==(const Progress&) const = default;
};

// The part whose tensors are the model itself. Only it may be loaded in another element type than it was saved in.
inline constexpr const char* kWeightPart = "weight";
// What compression has left out of the gradients of all ranks together (parallel/compressed_sums.h).
inline constexpr const char* kResidualPart = "residual";

}  // namespace lockstep
