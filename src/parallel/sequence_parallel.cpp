#include "parallel/sequence_parallel.h"

namespace lockstep {

namespace {

Tensor all_of(const Tensor& whole, const TensorSplit::RowPiece& piece) {
  return whole.slice(0, piece.first, piece.count);
}
template <class T>
T own_of(const T& own, const TensorSplit::RowPiece& piece) {
  return own.slice(0, piece.own_first, piece.own_count);
}

}  // namespace

// Elements of a piece by rank; none where all have equally many.
Communicator::Counts SequenceParallel::counts(const Tensor& whole, std::int64_t p) const {
  Communicator::Counts counts;
  const std::int64_t rows = whole.dim(0), width = rows > 0 ? whole.elements() / rows : 0;
  if (piece(whole, p).count % options_.split.size == 0) return counts;
  for (TensorSplit of = options_.split; std::ssize(counts) < of.size;) {
    of.rank = std::ssize(counts);
    counts.push_back(of.piece(rows, p).own_count * width);
  }
  return counts;
}

Communicator::Started SequenceParallel::start_piece(const Tensor& whole, const ConstTensor& own, std::int64_t p) const {
  const TensorSplit::RowPiece rows = piece(whole, p);
  return ranks_.all_gather(all_of(whole, rows), own_of(own, rows), counts(whole, p));
}

SequenceParallel::Exchange SequenceParallel::start_gather(const Tensor& whole, const ConstTensor& own) const {
  Exchange exchange;
  for (std::int64_t p = 0; p < pieces(whole); ++p) {
    exchange.push_back(start_piece(whole, own, p));
    if (!options_.overlap) exchange.back()->wait();
  }
  return exchange;
}

void SequenceParallel::finish(Exchange& exchange) {
  for (Communicator::Started& piece : exchange) piece->wait();
  exchange.clear();
}

void SequenceParallel::gather(const Tensor& whole, const ConstTensor& own, const Product& product) const {
  const std::int64_t n = pieces(whole);
  Communicator::Started next = start_piece(whole, own, 0);
  for (std::int64_t p = 0; p < n; ++p) {
    const Communicator::Started here = std::move(next);
    if (options_.overlap && p + 1 < n) next = start_piece(whole, own, p + 1);
    here->wait();
    const TensorSplit::RowPiece rows = piece(whole, p);
    product(rows.first, rows.count);
    if (!options_.overlap && p + 1 < n) next = start_piece(whole, own, p + 1);
  }
}

void SequenceParallel::reduce_scatter(const Tensor& own, const Tensor& whole, const Product& product) const {
  Exchange exchange;
  for (std::int64_t p = 0; p < pieces(whole); ++p) {
    const TensorSplit::RowPiece rows = piece(whole, p);
    product(rows.first, rows.count);
    exchange.push_back(ranks_.reduce_scatter(own_of(own, rows), all_of(whole, rows), {.algorithm = options_.algorithm},
                                             counts(whole, p)));
    if (!options_.overlap) exchange.back()->wait();
  }
  finish(exchange);
}

}  // namespace lockstep
