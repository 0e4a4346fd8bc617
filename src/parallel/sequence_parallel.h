// Sequence parallelism: between the products of a tensor-parallel layer, each rank holds the activations of its own
// rows (tokens) only, so norms, residuals and dropout cost 1/N of the memory and the work.
//
// A layer needs all rows where its first product begins, and gives a partial sum of all rows where its second one ends:
//
//              forward           backward
//   entering   gather            reduce-scatter
//   leaving    reduce-scatter    gather
//
//   gather           whole[n] = the row n of the rank that holds it
//   reduce-scatter   own[n]   = Σ over ranks of whole[n], for the rows n that this rank holds
//
// Together they send what one all-reduce sends, so memory is saved for free. Rows are exchanged in at most
// TensorSplit::pieces pieces, each while another piece is multiplied (spec/layout/tensor_split.h says which rows of a
// piece are whose). Without overlap each exchange is waited for at once and nothing else changes: the results are equal
// bit for bit. Messages start in the same order on every rank. One thread uses it; the ranks outlive it.
#pragma once
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "spec/layout/tensor_split.h"
#include "tensor/tensor.h"

namespace lockstep {

class SequenceParallel {
 public:
  struct Options {
    TensorSplit split;
    bool overlap = true;
    Algorithm algorithm = Algorithm::canonical;  // of sums
  };
  SequenceParallel(Communicator& ranks, const Options& options) : ranks_(ranks), options_(options) {}

  // A product over rows [first, first + count) of a whole tensor.
  using Product = std::function<void(std::int64_t first, std::int64_t count)>;
  // Messages under way, by piece.
  using Exchange = std::vector<Communicator::Started>;

  // `whole` (N, …) becomes the rows of all ranks, of which this one has `own`; the product gets each piece as it
  // arrives, in ascending order, while the next one is on its way.
  void gather(const Tensor& whole, const ConstTensor& own, const Product& product) const;
  // Starts the gather of all pieces; `whole` is complete after finish().
  [[nodiscard]] Exchange start_gather(const Tensor& whole, const ConstTensor& own) const;
  static void finish(Exchange& exchange);

  // The product writes its rows of `whole`, piece by piece; each is summed over the ranks while the next is computed,
  // and `own` receives this rank's rows of the sum.
  void reduce_scatter(const Tensor& own, const Tensor& whole, const Product& product) const;

 private:
  std::int64_t pieces(const Tensor& whole) const { return options_.split.pieces_of(whole.dim(0)); }
  TensorSplit::RowPiece piece(const Tensor& whole, std::int64_t p) const {
    return options_.split.piece(whole.dim(0), p);
  }
  Communicator::Counts counts(const Tensor& whole, std::int64_t p) const;
  Communicator::Started start_piece(const Tensor& whole, const ConstTensor& own, std::int64_t p) const;

  Communicator& ranks_;
  Options options_;
};

}  // namespace lockstep
