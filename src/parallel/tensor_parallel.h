// Tensor parallelism: where the ranks that split a layer meet.
//
// A layer's first product (column-parallel) gives each rank some of the outputs: heads, or feed-forward width. Its
// second (row-parallel) sums over them. So what enters the first must be the same on all ranks, and what leaves the
// second is a partial sum on each; in backward the two change places. With x the input, W1 and W2 the weights and r a
// rank:
//
//   h_r = f(x · W1_rᵀ)       y = Σ_r h_r · W2_rᵀ
//
//              forward                            backward
//   entering   nothing       (sp: gather)         all-reduce    (sp: reduce-scatter)
//   leaving    all-reduce    (sp: reduce-scatter) nothing       (sp: gather)
//
// With sequence parallelism (sp) activations between layers are split by tokens, and the exchanges are those of
// parallel/sequence_parallel.h. Without it, `own` and `whole` are the same tensor, and sums go in pieces of rows too,
// each while the next piece is multiplied. Overlap changes no bit. One thread uses it; the ranks outlive it.
#pragma once
#include "parallel/sequence_parallel.h"

namespace lockstep {

class TensorParallel {
 public:
  using Options = SequenceParallel::Options;
  using Product = SequenceParallel::Product;
  using Gathering = SequenceParallel::Exchange;

  TensorParallel(Communicator& ranks, const Options& options);

  const TensorSplit& split() const { return options_.split; }
  Communicator& ranks() const { return ranks_; }

  // Entering: `whole` (N, …) becomes the rows of all ranks, and is handed to the product piece by piece.
  void gather(const Tensor& whole, const ConstTensor& own, const Product& product) const;
  // All of it at once; and the same in two calls, for other work in between. Nothing without sequence parallelism.
  void gather(const Tensor& whole, const ConstTensor& own) const;
  [[nodiscard]] Gathering start_gather(const Tensor& whole, const ConstTensor& own) const;
  static void finish(Gathering& gathering) { SequenceParallel::finish(gathering); }

  // Leaving: the product writes its rows of `whole`, piece by piece; they are summed over the ranks, and `own` receives
  // this rank's rows, or all of them without sequence parallelism.
  void sum(const Tensor& own, const Tensor& whole, const Product& product) const;
  void sum(const Tensor& own, const Tensor& whole) const;  // of what `whole` holds

 private:
  void all_reduce(const Tensor& whole, const Product& product) const;

  Communicator& ranks_;
  Options options_;
  SequenceParallel rows_;
};

}  // namespace lockstep
