// The gradients of a rank that has no other to sum them with, offloaded between their uses.
//
// A unit's gradient is on the device while phases add to it, unit after unit in the order of the step's list, and in
// the host's memory or on a disk otherwise (offload/visits.h). Actions of one unit that follow each other are one
// visit. Micro-batches are added by the kernels that make them, as where nothing is offloaded: the same bits. Units
// that are not offloaded stay. The norm and the updates read what is offloaded a window at a time (train/rank_state.h).
#pragma once
#include "offload/visits.h"
#include "parallel/gradients.h"

namespace lockstep {

class OffloadedGradients final : public Gradients {
 public:
  OffloadedGradients(const Options& options, const Shard& shard, Memory& memory, Stream& stream);

  const std::vector<Tensor>& open(int unit, int micro) override;
  void close(int unit) override;
  bool adds(int micro) const override { return micro > 0; }
  void whole(int unit, int micro) override;
  Tensor tied() override { return tied_gradient_; }
  void wait() override;
  Tensor reduced(int unit) const override { return flat_[static_cast<std::size_t>(unit)]; }
  bool is_offloaded(int unit) const override { return offloaded_[static_cast<std::size_t>(unit)]; }
  void wait_until_back(Stream& stream) override { visits_->wait_until_back(stream); }
  void settle() override { visits_->settle(); }
  Staging::Traffic traffic() const override { return visits_->traffic(); }

 private:
  // The actions of the list that need an offloaded gradient on the device.
  struct Touch {
    int unit;
    bool enters, leaves;
  };
  void find_touches(const std::vector<Action>& actions);
  void enter(int unit);

  Stream& stream_;
  std::optional<TiedParameter> tie_;
  std::vector<const UnitLayout*> layouts_;
  std::vector<bool> offloaded_;
  std::function<void(int, const Tensor&)> complete_;
  std::vector<Touch> touches_;
  std::vector<Visits::Visit> order_;
  std::size_t next_ = 0, entered_ = 0;  // touches of this step, and visits
  std::vector<Buffer> buffers_;
  std::vector<Tensor> flat_;                  // by unit, wherever it is
  std::vector<std::vector<Tensor>> tensors_;  // by unit and parameter; of an offloaded one while it is here
  Tensor here_;                               // of the visit
  Buffer tied_;
  Tensor all_tied_, tied_gradient_;  // of the unit that borrows, and of the tied weight
  std::optional<Visits> visits_;
};

}  // namespace lockstep
