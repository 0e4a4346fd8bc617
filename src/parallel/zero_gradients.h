// ZeRO's gradients (stages 2 and 3, grad_sync = micro): after every micro-batch a unit's gradient is summed over the
// ranks, and each rank keeps its shard of the sums, added up over micro-batches in their order.
//
// A unit's gradient is whole on a rank only from the first phase that writes it until its sum is complete, and that of
// at most two units: before a third is written, the oldest is waited for. Units of a bundle whose reductions follow
// each other in the list are summed in one call, and stay whole until it is complete: two calls' gradients are whole.
// Whole gradients share one buffer by lifetime over the list of actions and are tagged as messages; the shards that are
// kept are tagged as gradients: 1/N of all units.
//
// A tied parameter's gradient is summed when its unit is done with it, into a shard of its own, which joins the shard
// of the unit that owns the weight when all micro-batches are in both. So neither waits for the other at full size, and
// the order in which they arrive does not change the sum.
//
// Where less is sent than all (Options::compress), each unit, and the tied parameter, is summed as
// parallel/compressed_sum.h says.
//
// A shard that is offloaded is on the device while a micro-batch's sum is added to it (offload/visits.h).
#pragma once
#include "offload/visits.h"
#include "parallel/gradient_sums.h"
#include "parallel/gradients.h"

namespace lockstep {

class ZeroGradients final : public Gradients {
 public:
  ZeroGradients(const Options& options, ZeroGroups& groups, Memory& memory, Stream& stream);

  const std::vector<Tensor>& open(int unit, int micro) override;
  bool adds(int) const override { return false; }
  void whole(int unit, int micro) override;
  Tensor tied() override;
  void wait() override;
  Tensor reduced(int unit) const override { return kept_[unit]; }
  bool is_offloaded(int unit) const override { return !offloaded_.empty() && offloaded_[unit]; }
  void wait_until_back(Stream& stream) override;
  std::vector<Owed> owed() const override;
  void begin(std::span<const std::int32_t>) override {
    if (compressed_) compressed_->begin();
  }
  Tensor compression_squares() const override { return compressed_ ? compressed_->squares() : Tensor{}; }
  void sum_owed() override;
  void deal_owed() override;
  void settle() override;
  Staging::Traffic traffic() const override { return visits_ ? visits_->traffic() : Staging::Traffic{}; }

 private:
  // One unit's gradient of one micro-batch.
  struct Pass {
    int unit, micro;
    std::int64_t offset;  // in elements
    int call;             // that sums it
  };
  void plan(const Options& options, Memory& memory);
  void compress(const Options& options, Memory& memory);
  void clear_padding(const UnitLayout& layout) const;
  Tensor flat_of(const Pass& pass) const;
  void keep(const Options& options, Memory& memory);
  void plan_visits(const Options& options, Memory& memory);
  bool joins_offloaded() const;
  void add_to_kept(int unit, const Tensor& part, bool first);
  void sum_call();
  void settle_sums(std::size_t most = 0);
  void sum_tied(bool first);
  // The elements of the tied weight that are in shard `part` of its owner, from the weight's
  // beginning.
  std::pair<std::int64_t, std::int64_t> tied_range(std::int64_t part) const;
  std::int64_t tied_elements(int unit) const { return layouts_[unit]->elements() - layouts_[unit]->owned(); }

  ZeroGroups& groups_;
  Stream& stream_;
  std::optional<TiedParameter> tie_;
  std::vector<const UnitLayout*> layouts_;
  DType dtype_;
  std::vector<Pass> passes_;
  std::size_t current_ = 0;
  std::size_t sums_before_ = 0, sums_now_ = 0;  // that the call before the current pass's, and its own, have started
  std::vector<const Pass*> complete_passes_;    // of the current call, whose gradients are complete
  Buffer buffer_, kept_buffer_;
  std::vector<bool> offloaded_;         // by unit; empty: nothing is
  std::vector<Buffer> offloaded_kept_;  // by unit
  std::vector<Tensor> kept_;            // by unit
  Buffer kept_tied_buffer_;
  Tensor kept_tied_;             // of the tied weight's gradient
  bool joins_tied_ = false;      // it has still to be added
  Tensor flat_, tied_;           // of the current pass
  std::vector<Tensor> tensors_;  // its parameters
  std::function<void(int, const Tensor&)> complete_;
  std::optional<Visits> visits_;  // of what is offloaded
  GradientSums sums_;
  std::optional<CompressedSums> compressed_;  // in their place, where less is sent than all: by unit, then the tied
};

}  // namespace lockstep
