// The last unit: final norm, projection to the vocabulary, and the loss.
//
// Logits are made, turned into their own gradient and consumed tile by tile of tokens, so B·T·V never stands whole.
// In training, forward therefore already computes the gradient of the normed activations, and adds the head weight's
// gradient, tile by tile in ascending order: three products instead of the four or five of coming back later.
// backward_input is the norm's alone. Where another rank computes the losses, tiles go to it (parallel/remote_loss.h).
// Under tensor parallelism each rank has the logits of a slice of the vocabulary; three numbers per token and rank
// are exchanged, and each rank turns its logits into losses (the same on all ranks) and gradients.
#pragma once
#include "model/build.h"
#include "model/names.h"
#include "model/norm.h"

namespace lockstep {

class Head final : public Unit {
 public:
  Head(const Build& build, int unit, const Between& between);

  void forward(const Call& call) const override;
  void backward_input(const Call& call) const override;
  void backward_weight(const Call& call) const override;

  // The logits of tokens [first, first + out.dim(0)), from the normed activations of the last forward. out: (n,
  // columns), accumulator type; of the vocabulary, vocabulary().count columns from vocabulary().first on.
  void logits(Tensor out, std::int64_t first, const Call& call) const;
  // In the place of forward where no loss is wanted: the norm, and the logits of the last out.dim(0) tokens.
  void last_logits(Tensor out, const Call& call) const;
  int weight() const { return weight_; }
  std::int64_t tile() const { return tile_; }  // tokens
  const Part& vocabulary() const { return vocabulary_; }

 private:
  Tensor take_losses(const Tensor& scores, std::int64_t first, const Call& call) const;
  void take_split_losses(const Tensor& scores, const Tensor& d_scores, std::int64_t first, const Call& call) const;
  Tensor likeliest_of(const Batch& batch, std::int64_t first, std::int64_t count) const {
    return batch.likeliest ? batch.likeliest.slice(0, first, count) : Tensor{};
  }
  Tensor normed(const Call& call) const { return call.at[all_normed_ < 0 ? normed_ : all_normed_]; }

  Between between_;
  bool frozen_;
  Norm norm_;
  Part vocabulary_;
  int weight_;
  std::int64_t tile_;  // tokens
  Slot normed_, d_normed_;
  Slot logits_;                                 // and, written over them, their gradient
  Slot all_normed_ = -1, d_all_normed_ = -1;    // of all tokens; only with sequence parallelism
  Slot statistics_ = -1, all_statistics_ = -1;  // only where the vocabulary is cut
};

}  // namespace lockstep
