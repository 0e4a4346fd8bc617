// The model: its units in order, and the slots between and inside them, for micro-batches of one size.
//
// Built from a spec alone; it owns no weights and no activations, so a model of any size can be built, and on `meta`
// run, anywhere.
#pragma once
#include <memory>
#include <vector>

#include "model/block.h"
#include "model/embedding.h"
#include "model/half_block.h"
#include "model/head.h"
#include "model/unit.h"
#include "spec/model/model_spec.h"
#include "spec/model/model_units.h"

namespace lockstep {

class Model {
 public:
  // For B samples, T tokens of each.
  Model(const ModelSpec& spec, std::int64_t B, std::int64_t T, DType dtype, const Execution& how = {});

  const ModelSpec& spec() const { return spec_; }
  DType dtype() const { return dtype_; }
  std::int64_t B() const { return B_; }
  std::int64_t T() const { return T_; }
  int units() const { return static_cast<int>(units_.size()); }
  ModelUnits of_blocks() const { return {spec_.layers, halves_}; }  // which of them are which block's
  const Unit& unit(int index) const { return *units_[index]; }
  const Head& head() const { return *head_; }
  const Slots& slots() const { return slots_; }
  const Between& between(int unit) const { return between_[static_cast<std::size_t>(unit)]; }  // it and its neighbours

  // What a step over this model must do, in `micro` micro-batches.
  StepShape step_shape(int micro) const;

  // A tied head computes with the embedding's weight: (unit, parameter) of the owner and of the borrower.
  struct Tie {
    int owner_unit, owner_parameter, borrower_unit, borrower_parameter;
  };
  const Tie* tie() const { return spec_.tied ? &tie_ : nullptr; }

 private:
  ModelSpec spec_;
  std::int64_t B_, T_;
  DType dtype_;
  bool halves_;
  Slots slots_;
  std::vector<Between> between_;
  std::vector<std::unique_ptr<Unit>> units_;
  const Head* head_ = nullptr;
  Tie tie_{};
};

// Every tensor of the model that is trained, by the name the world knows it by, in the order of its units; and those
// that are frozen.
std::vector<LogicalTensor> logical_tensors(const Model& model);
std::vector<LogicalTensor> frozen_tensors(const Model& model);

// Runs one phase of one unit.
void run_phase(const Unit& unit, ActionKind phase, const Call& call);

}  // namespace lockstep
