// The seams of a layer that is cut between ranks: where tokens of all ranks come together, and where what each rank has
// computed a part of is summed.
//
// A layer's first product gives each rank some of its outputs (heads, feed-forward width), its second sums over them:
// so what enters the first is the same on all ranks, and what leaves the second must be summed over them. In backward
// the two change places. With sequence parallelism (spec/layout/tensor_split.h) what is between layers is cut by
// tokens, and a sum over all ranks of which each keeps its own rows takes the place of a sum that all of them get:
// entering gathers rows, leaving sums and deals them out again.
//
//             forward                            backward
//   entering  gather (or nothing)                sum and deal out (or sum)
//   leaving   sum and deal out (or sum)          gather (or nothing)
//
// Exchanges go in chunks of rows, each beside the product of another chunk; without overlap each is waited for at once,
// and nothing else changes, so no bit does. One thread uses it; the ranks outlive it.
#pragma once
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "spec/layout/tensor_split.h"
#include "tensor/tensor.h"

namespace lockstep {

class TensorParallel {
 public:
  struct Options {
    TensorSplit split;
    bool overlap = true;
    Algorithm algorithm = Algorithm::canonical;  // of sums
  };
  TensorParallel(Communicator& ranks, const Options& options);

  const TensorSplit& split() const { return options_.split; }
  Communicator& ranks() const { return ranks_; }

  // A product over rows [first, first + count) of a whole tensor.
  using Product = std::function<void(std::int64_t first, std::int64_t count)>;

  // Entering: `whole` (N, …) becomes everybody's rows, of which this rank has `own`, and is handed to the product chunk
  // by chunk. Without sequence parallelism `whole` is `own`, and this is the product.
  void gather(const Tensor& whole, const ConstTensor& own, const Product& product) const;
  // All of it at once; and the same in two calls, for other work in between.
  void gather(const Tensor& whole, const ConstTensor& own) const;
  using Gathering = std::vector<Communicator::Started>;
  [[nodiscard]] Gathering start_gather(const Tensor& whole, const ConstTensor& own) const;
  static void finish(Gathering& gathering);

  // Leaving: the product writes its rows of `whole`, chunk by chunk; they are summed over ranks, and `own` gets this
  // rank's rows. Without sequence parallelism `own` is `whole`.
  void sum(const Tensor& own, const Tensor& whole, const Product& product) const;
  void sum(const Tensor& own, const Tensor& whole) const;  // of what is there

 private:
  Communicator::Started start_chunk(const Tensor& whole, const ConstTensor& own, std::int64_t chunk) const;

  Communicator& ranks_;
  Options options_;
};

}  // namespace lockstep
