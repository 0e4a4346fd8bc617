#include "parallel/tensor_parallel.h"

namespace lockstep {

TensorParallel::TensorParallel(Communicator& ranks, const Options& options)
    : ranks_(ranks), options_(options), rows_(ranks, options) {
  LOCKSTEP_CHECK(ranks.size() == options.split.size && ranks.rank() == options.split.rank,
                 "rank {} of {} for part {} of {}", ranks.rank(), ranks.size(), options.split.rank, options.split.size);
}

void TensorParallel::gather(const Tensor& whole, const ConstTensor& own, const Product& product) const {
  if (!split().sequence) return product(0, whole.dim(0));
  rows_.gather(whole, own, product);
}

TensorParallel::Gathering TensorParallel::start_gather(const Tensor& whole, const ConstTensor& own) const {
  return split().sequence ? rows_.start_gather(whole, own) : Gathering{};
}

void TensorParallel::gather(const Tensor& whole, const ConstTensor& own) const {
  Gathering gathering = start_gather(whole, own);
  finish(gathering);
}

void TensorParallel::sum(const Tensor& own, const Tensor& whole, const Product& product) const {
  if (!split().sequence) return all_reduce(whole, product);
  rows_.reduce_scatter(own, whole, product);
}

void TensorParallel::sum(const Tensor& own, const Tensor& whole) const {
  sum(own, whole, [](std::int64_t, std::int64_t) {});
}

void TensorParallel::all_reduce(const Tensor& whole, const Product& product) const {
  Gathering under_way;
  for (std::int64_t p = 0; p < split().pieces_of(whole.dim(0)); ++p) {
    const TensorSplit::RowPiece rows = split().piece(whole.dim(0), p);
    product(rows.first, rows.count);
    under_way.push_back(ranks_.all_reduce(whole.slice(0, rows.first, rows.count), {.algorithm = options_.algorithm}));
    if (!options_.overlap) under_way.back()->wait();
  }
  finish(under_way);
}

}  // namespace lockstep
