// A step's batch on the device: tokens, targets, their losses, and what every micro-batch shares (positions, RoPE
// tables, the weight of a target in the loss).
//
// The batch is this rank's part of the global one: B samples, split into `micro` micro-batches of B / micro samples,
// and of each sample the tokens that are this rank's (context parallel). The loss's denominator is the number of
// targets that count in the global batch, known before the first forward, so that how the batch is split, over ranks or
// micro-batches, changes neither loss nor gradient. Where replicas take local steps, the gradient's is that of the
// ranks it is summed over, and the loss that is told stays the global batch's. Every buffer is allocated by the
// constructor; setting a batch allocates nothing.
//
// Samples without padding are one row of documents in each micro-batch (train/batch_rows.h): the buffers have room for
// samples of T tokens, and a micro-batch is the beginning of its own.
//
// Where steps overlap (spec/pipeline/pipedream.h) the device keeps the batch of the step before as well, whose last
// micro-batches have their backward beside the next one. Where every micro-batch is an update of its own, the loss's
// denominator is the number of targets that count in the micro-batch, over all ranks.
//
// Batches come and losses go through host buffers (tensor/transfer.h), in two places used in turn: while the device
// works at one batch, the host can already set the next.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/step_control.h"
#include "model/unit.h"
#include "spec/layout/context_split.h"
#include "spec/model/model_spec.h"
#include "tensor/memory.h"
#include "tensor/transfer.h"
#include "train/batch_rows.h"

namespace lockstep {

class BatchBuffers {
 public:
  struct Sizes {
    std::int64_t first;  // of this rank's samples in the global batch
    std::int64_t B;      // samples of this rank
    std::int64_t T;      // tokens of a sample
    int micro;
    DType sums;             // the accumulator type
    std::int64_t loss_B;    // samples whose losses are computed here: B, or all or none (parallel/data_parallel.h)
    bool has_head = true;   // false: another stage computes the losses
    bool scaled = false;    // the loss is, on the device (scale_loss)
    bool overlaps = false;  // the batch before is kept on the device
    bool by_micro_batch = false;  // the denominator is
    ContextSplit context = {};
    bool documents = false;  // samples are several: tokens say where they begin (data/dataset.h)
    bool varlen = false;     // those that are have no padding
    std::int64_t least_tokens = 1, expected_tokens = 0;        // of such a micro-batch (train/batch_rows.h)
    std::int64_t tokens() const { return context.tokens(T); }  // of a sample, here
  };
  // The ranks whose gradients are summed, and the stages of a pipeline that work at the same part of the batch; on the
  // host. `others`: where replicas take local steps, those that have other parts of the global batch and sum with other
  // ranks. They outlive this.
  struct Ranks {
    Communicator& replicas;
    Communicator& others;
    Communicator& stages;
  };
  BatchBuffers(const ModelSpec& spec, const Sizes& sizes, const Ranks& ranks, Memory& memory, Stream& stream);

  static constexpr int kPlaces = 2;

  // (B, T) tokens and (loss_B, T) targets of whole samples, kIgnoredTarget where no loss is taken; does not wait for
  // the stream. Where samples are documents, tokens have kBeginsDocument at the first of each. The place's last batch
  // must be done.
  void set(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place, Stream& stream);
  // The same for a batch of this rank's samples alone, the first of which has this number in the global batch: its loss
  // and gradient are means over its own targets. No message is sent.
  void set_apart(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, std::int64_t first,
                 int place, Stream& stream);
  // Of the place's batch, those that are here, on the host; none on meta.
  std::span<const std::int32_t> host_tokens(int place) {
    return places_[static_cast<std::size_t>(place)].tokens.as<std::int32_t>();
  }
  // Before the forwards of a batch to train on: its targets weigh as much more in the gradient as the step's control
  // says (kernels/step_control.h), where losses are scaled at all.
  void scale_loss(const ConstTensor& control, Stream& stream);
  // Micro-batch m of it, or of the batch set `before` it (0 or 1). The seed of dropout is that of the step; the tensors
  // are views of the buffers here. Without training the head marks the targets that were the likeliest, in their place.
  Batch micro_batch(int m, std::uint64_t dropout_seed, bool training, int before = 0) const;
  // How many tokens it has here, of those there is room for.
  RowExtent extent(int m, const TensorSplit& split, int before = 0) const {
    return rows_before(before).extent(m, split);
  }
  // Targets and losses of all loss_B samples.
  RemoteLoss::Tensors loss_tensors() const;
  // After the batch's last forward: copies its losses to the host, without waiting.
  void fetch_losses(int place, Stream& stream);
  // When they are there: the mean over the targets that count in the global batch; each rank sums its own in the order
  // of samples, whatever the micro-batches were, then the ranks' sums are added. Zero when no target counts. All ranks
  // call it and get the same.
  double mean_loss(int place) const;
  // Of a batch that was set apart: the sum of its losses, and its targets that count. All stages call it.
  struct OwnLosses {
    double sum = 0;
    std::int64_t targets = 0;
  };
  OwnLosses losses_apart(int place) const;
  // Likewise, of one that was not for training, when losses and marks are there: the loss is a sum.
  // The same in parts, where stages are not waited for: the sum over the ranks that have this rank's layers, zero where
  // another stage has the losses; and the mean that the stages' sum is.
  double loss_of_stage(int place) const;
  double mean(int place, double total) const;
  // Of a batch that was not for training, after its last forward: copies the marks of its targets to the host, without
  // waiting.
  void fetch_likeliest(int place, Stream& stream);
  // When losses and marks are there: mean_loss(), and how many targets of the global batch no token of the vocabulary
  // has a larger logit than. All ranks call it and get the same.
  struct Evaluated {
    double loss = 0;
    std::int64_t likeliest = 0;
    std::int64_t targets = 0;  // that count
  };
  Evaluated evaluated(int place) const;
  // The same of a batch that was set apart, whose loss is not a mean but a sum. All stages call it.
  Evaluated evaluated_apart(int place) const;
  // What the batch that was set last has here.
  const BatchRows& rows() const { return places_[static_cast<std::size_t>(place_)].rows; }

 private:
  struct Place {
    HostBuffer tokens, targets, loss_scale, losses, in_document, starts;
    std::int64_t valid_targets = 0;  // of the global batch
    BatchRows rows;                  // of this rank's samples
    BatchRows others_rows = {};      // of those whose losses are computed here, where they are others
  };
  const BatchRows& loss_rows(int place) const {
    const Place& at = places_[static_cast<std::size_t>(place)];
    return sizes_.loss_B == sizes_.B ? at.rows : at.others_rows;
  }
  const BatchRows& rows_before(int before) const {
    return places_[static_cast<std::size_t>((place_ + before) % kPlaces)].rows;
  }
  // Of a micro-batch of the batch in this place of the device.
  Tensor loss_scale(int kept, int micro) const {
    if (sizes_.scaled) return view(scaled_, sizes_.sums, {1});
    return view(loss_scale_, sizes_.sums, {1}, kept * scales() + (sizes_.by_micro_batch ? micro : 0));
  }
  std::int64_t scales() const { return sizes_.by_micro_batch ? sizes_.micro : 1; }
  int kept(int place) const { return sizes_.overlaps ? place : 0; }
  // On the device, of the batch in this place there.
  Tensor tokens(int kept) const;
  Tensor targets(int kept) const;
  Tensor losses(int kept) const;
  void count_targets(std::span<const std::int32_t> targets, int place);
  // Where in its row of attention the document of each token begins.
  void set_documents(std::span<const std::int32_t> tokens, int place, Stream& stream);
  void find_starts(std::span<const std::int32_t> tokens, int place, std::int64_t row, std::int64_t T);
  void take(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, int place, Stream& stream);
  std::array<double, 2> own_totals(int place) const;
  double own_losses(int place) const;  // their sum; zero where another stage has them

  ModelSpec spec_;
  Sizes sizes_;
  Ranks ranks_;
  Buffer tokens_, targets_, losses_, positions_, cos_, sin_, loss_scale_;
  // Where samples are documents: (B, tokens), (B, share), and all positions that there are.
  Buffer in_document_, starts_, every_position_;
  std::vector<std::int32_t> row_starts_;  // of one sample or row, on the host
  Buffer scaled_;                         // the weight of a target times the loss scale
  // Targets that count, of those of all ranks: of each micro-batch where its denominator is its own, else of all.
  std::vector<std::int64_t> valid_;
  int place_ = 0;  // of the batch that was set last
  std::array<Place, kPlaces> places_;
  std::int64_t first_sample_ = 0;  // of the batch that was set last, in the global batch
};

}  // namespace lockstep
