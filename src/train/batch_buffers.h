// A step's batch on the device: tokens, targets, their losses, and what every micro-batch shares (positions, RoPE
// tables, the weight of a target in the loss).
//
// The batch has B samples and is cut into `micro` micro-batches of B / micro samples. The loss's denominator is the
// number of targets that count in the whole batch, known before the first forward, so that how the batch is cut changes
// neither loss nor gradient. Everything is taken at construction; setting a batch allocates nothing.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/unit.h"
#include "spec/model_spec.h"
#include "tensor/memory.h"

namespace lockstep {

class BatchBuffers {
 public:
  struct Sizes {
    std::int64_t B;  // samples of the whole batch
    std::int64_t T;
    int micro;
    DType sums;  // the accumulator type
  };
  BatchBuffers(const ModelSpec& spec, const Sizes& sizes, Memory& memory, Stream& stream);

  // (B, T) tokens and targets, kIgnoredTarget where no loss is taken.
  void set(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, Stream& stream);
  // Micro-batch m of it. The seed of dropout is that of the step; the tensors are views of the buffers here.
  Batch micro_batch(int m, std::uint64_t dropout_seed, bool training) const;
  // The mean over the targets that count, summed in the order of samples whatever the micro-batches were. Zero when no
  // target counts.
  double mean_loss(Stream& stream);

 private:
  ModelSpec spec_;
  Sizes sizes_;
  Buffer tokens_, targets_, losses_, positions_, cos_, sin_, loss_scale_;
  std::vector<double> host_losses_;  // where losses land when they are read
  std::vector<float> narrow_losses_;
  std::int64_t valid_targets_ = 0;
};

}  // namespace lockstep
