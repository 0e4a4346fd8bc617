// Activations and their gradients on their way between pipeline stages in fewer bytes ([sync] compress_activations).
//
// What a stage sends for a micro-batch is a tensor of (tokens, width). Each token's row is compressed by itself
// (kernels/row_codes.h), so what arrives does not depend on which tokens are sent together: not on micro-batches, on
// dp, on the parts of samples that cp has, nor on those of tokens that sequence parallelism has. Without that, every
// rank of a tensor-parallel group sends all rows to its counterpart, as it does uncompressed, and all get the same.
//
// Nothing is carried from one message to the next (no error feedback): the rows of the next micro-batch are other
// samples', and what was left out of one token's activation is nothing that another token's should have. The stage that
// receives computes with what the codes say, in its backward too; the gradient that it sends back is taken for that of
// what was sent. Weights, their gradients and the forwards of an evaluation are sent as they are.
//
// Codes are sent in place of tensors: a stage keeps room for kSendsInFlight of them to each stage, and for as many from
// others as its list of actions has under way at once. One thread uses it; memory and stream outlive it.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "kernels/row_codes.h"
#include "spec/run/compression.h"
#include "spec/step/actions.h"
#include "tensor/memory.h"

namespace lockstep {

class ActivationCodes {
 public:
  struct Options {
    Compression form;
    std::int64_t rows, width;  // of a tensor between stages
    DType dtype;
    const std::vector<Action>& actions;  // of a step
    const StepShape& shape;
  };
  ActivationCodes(const Options& options, Memory& memory, Stream& stream);

  // The code of a tensor to be sent to that stage. At most kSendsInFlight - 1 codes sent there before may be under way.
  ConstTensor encode(const ConstTensor& x, int to);
  // Where the code of what this action receives comes, and, when it has come, what it says.
  Tensor room_for(const Action& receive);
  void decode(const Action& receive, const Tensor& y);
  // A list begins: no code is under way.
  void begin();

 private:
  using Key = std::tuple<ActionKind, int, int>;
  static Key key(const Action& a) { return {a.kind, a.unit, a.micro}; }
  Tensor code(std::int64_t place) const;

  Stream& stream_;
  const RowCode form_;
  const std::int64_t rows_, words_;  // of a row
  Buffer codes_;
  struct Sending {
    std::int64_t first = 0, places = 0, next = 0;
  };
  std::map<int, Sending> sending_;  // by stage
  std::int64_t first_room_ = 0, rooms_ = 0;
  std::vector<std::int64_t> free_rooms_;
  std::map<Key, std::int64_t> arriving_;  // by receive: its room
};

// What each token's row is sent as.
RowCode row_code(const Compression& form, std::int64_t width);

}  // namespace lockstep
