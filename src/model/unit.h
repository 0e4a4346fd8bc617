// A unit: the piece of the model that is scheduled, gathered, reduced and counted as one (the embedding, a block or
// half of one, the head).
//
// A unit has three phases, each a separate call: forward, backward-input (the gradient of what it was given) and
// backward-weight (the gradients of its parameters, added to or started in their buffers). It declares its parameters
// (UnitLayout) and its activations (Slots) when it is built and owns neither: a Call hands it the tensors of one
// micro-batch. So the same unit runs on any device, with parameters that are there always or only while it runs, and
// with any number of micro-batches in flight.
// The one exception is the head, whose forward already adds its weight's gradient (head.h says why).
#pragma once
#include <cstdint>
#include <vector>

#include "model/slots.h"
#include "parallel/context_parallel.h"
#include "parallel/remote_loss.h"
#include "parallel/tensor_parallel.h"
#include "spec/model/parameters.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// What a micro-batch brings with it: B samples, T tokens of each, which may be some of them; without padding, one row
// of documents (Execution::varlen).
struct Batch {
  ConstTensor tokens;     // (B, T) int32
  ConstTensor targets;    // (B·T) int32, kIgnoredTarget where no loss is taken
  ConstTensor positions;  // (T) int32; none without padding
  // Of samples that are several documents (kernels/attention.h): each token's position in its document, (B, T) int32,
  // and where in the sample the documents begin of the tokens that attention has here, (B, their number). None:
  // positions are as above, and a sample is one document.
  ConstTensor in_document = {};
  ConstTensor starts = {};
  ConstTensor rope_cos =
      {};  // (T, D/2) for the positions, or (all of a sample, D/2) with in_document; none without RoPE
  ConstTensor rope_sin = {};
  ConstTensor loss_scale;          // (1) accumulator type: the weight of each target's loss in the gradient
  Tensor losses;                   // (B·T) accumulator type: the head writes each token's loss here
  Tensor likeliest = {};           // (B·T) int32, of cross_entropy.h, where it is wanted: may be the targets' memory
  std::int64_t first_sample = 0;   // the logical index of sample 0, for dropout
  std::uint64_t dropout_seed = 0;  // of this step
  bool training = true;            // false: no dropout, no gradients
  int micro = 0;                   // which of the step's micro-batches it is
  // Where another rank computes the losses: this does, and targets, loss_scale and losses are not used. None: the head
  // computes them.
  const RemoteLoss* remote_loss = nullptr;

  // Where tokens are in their documents: (T), or (B, T) where samples are several.
  const ConstTensor& document_positions() const { return in_document ? in_document : positions; }
};

// The tensors of a unit's parameters, by their index in its layout.
struct UnitTensors {
  std::vector<ConstTensor> weights;
  std::vector<Tensor> gradients;
};

// The keys and values of the tokens that came before those of a call, of one sample in one block: with them a forward
// costs its own tokens, not the whole sequence again. Ranks may have them between them (spec/layout/cache_split.h).
struct KeyValueCache {
  Tensor k, v;                    // (1, S, K, D) in the compute type; attention fills rows [length, length + T)
  std::int64_t length = 0;        // rows filled by the calls before, here
  bool keeps = true;              // the call's tokens; false: another rank does, and no row is filled here
  Communicator* ranks = nullptr;  // those that have rows; none: all are here
};

// Everything one call of a unit works with.
struct Call {
  const UnitTensors& unit;
  PhaseActivations at;
  const Batch& batch;
  Stream& stream;
  bool accumulate = false;  // add to the gradients; false: be their first writer in this step
  // Of a block, for generating: forward alone, one cache for each sample of the batch, whose positions are those after
  // what its cache holds. Samples that are the same may share one.
  const KeyValueCache* caches = nullptr;
  const TensorParallel* tensor = nullptr;    // the ranks that cut layers with this one; none: it has all of them
  const ContextParallel* context = nullptr;  // those that cut samples with it; none: it has all tokens

  // The same call over the activations that its unit recomputes, or that were brought back to it.
  Call again() const {
    Call second = *this;
    second.at = at.again();
    return second;
  }
  TensorSplit split() const { return tensor ? tensor->split() : TensorSplit{}; }
  ConstTensor weight(int parameter) const { return unit.weights[parameter]; }
  Tensor gradient(int parameter) const { return unit.gradients[parameter]; }
};

class Unit {
 public:
  virtual ~Unit() = default;
  const UnitLayout& layout() const { return layout_; }

  virtual void forward(const Call& call) const = 0;
  virtual void backward_input(const Call& call) const = 0;
  virtual void backward_weight(const Call& call) const = 0;

 protected:
  explicit Unit(std::string name) : layout_(std::move(name)) {}
  UnitLayout layout_;
};

}  // namespace lockstep
