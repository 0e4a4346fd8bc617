// What a rank holds of a unit: its parameters, gradients and, unless another rank updates it, the optimizer's state.
//
// Flat buffers in the order of the unit's layout: the weights that compute, their gradients (in a place of the
// caller's; those of tied parameters here), and, where the weights are 16-bit, an fp32 master beside them; the
// optimizer keeps its moments itself. Padding between parameters is zero and stays zero. With AdamW in bf16 that is 18
// bytes an element: weight 2, gradient 4, master 4, moments 8; with bf16 gradients 16, and with bf16 moments too 12.
#pragma once
#include <memory>
#include <optional>

#include "optim/flat_optimizer.h"
#include "spec/optimizer_spec.h"
#include "spec/parameters.h"
#include "spec/precision.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// The element types of a run: what computes, what gradients are summed in, what the optimizer updates, and what it
// keeps beside that.
struct StorageTypes {
  DType compute, gradient, master, moments;
};
StorageTypes storage_types(const PrecisionSpec& precision);

class UnitStorage {
 public:
  struct Options {
    StorageTypes types;
    OptimizerSpec optimizer;
    Tensor gradient;      // flat, of layout.owned() elements
    bool updates = true;  // false: no masters and no optimizer state; the weights come from elsewhere
  };
  // The layout and the gradient's memory outlive the storage.
  UnitStorage(const UnitLayout& layout, const Options& options, Memory& memory, Stream& stream);

  // One stored parameter. A tied one has no weight and no master here.
  Tensor weight(int parameter) const;
  Tensor gradient(int parameter) const;
  Tensor master(int parameter) const;  // the weight itself where no master is kept apart

  // Flat buffers of everything that is owned here, the tied parameters' left out.
  Tensor flat_gradient() const { return gradient_; }
  Tensor flat_master() const;
  Tensor flat_weight() const { return flat(weights_, types_.compute); }
  bool updates() const { return optimizer_.has_value(); }
  // What the optimizer keeps, by the names a checkpoint gives it.
  std::vector<std::pair<std::string_view, Tensor>> optimizer_state() const { return optimizer_->named_state(); }

  // A logical tensor as a range of any of the flat buffers.
  struct Piece {
    const LogicalTensor& tensor;
    const StoredParameter& parameter;  // that it is part of
    std::int64_t offset;
    Tensor of(const Tensor& flat) const { return flat.slice(0, offset, tensor.elements()); }
  };
  template <class Visit>
  void each_piece(Visit&& visit) const {
    for (std::size_t p = 0; p < layout_.parameters().size(); ++p) {
      std::int64_t offset = layout_.offset(static_cast<int>(p));
      for (const LogicalTensor& tensor : layout_.parameters()[p].pieces) {
        visit(Piece{tensor, layout_.parameters()[p], offset});
        offset += tensor.elements();
      }
    }
  }

  // Makes the weights what the masters say.
  void publish(Stream& stream);
  // Nothing where another rank does it.
  void update(ConstTensor control, Stream& stream);

 private:
  Tensor part(const Buffer& buffer, DType dtype, int parameter) const;
  Tensor flat(const Buffer& buffer, DType dtype) const { return view(buffer, dtype, {layout_.owned()}); }

  const UnitLayout& layout_;
  StorageTypes types_;
  Tensor gradient_;
  Buffer weights_, tied_gradients_, masters_;
  std::optional<FlatOptimizer> optimizer_;
};

}  // namespace lockstep
