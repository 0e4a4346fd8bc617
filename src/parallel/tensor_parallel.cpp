#include "parallel/tensor_parallel.h"

namespace lockstep {

namespace {

// Chunk c of n of a tensor's rows.
template <class T>
T chunk_of(const T& rows, std::int64_t c, std::int64_t n) {
  const std::int64_t each = rows.dim(0) / n;
  return rows.slice(0, c * each, each);
}

}  // namespace

TensorParallel::TensorParallel(Communicator& ranks, const Options& options) : ranks_(ranks), options_(options) {
  LOCKSTEP_CHECK(ranks.size() == options.split.size && ranks.rank() == options.split.rank,
                 "rank {} of {} for part {} of {}", ranks.rank(), ranks.size(), options.split.rank, options.split.size);
}

Communicator::Started TensorParallel::start_chunk(const Tensor& whole, const ConstTensor& own,
                                                  std::int64_t chunk) const {
  const std::int64_t n = split().chunks_of(whole.dim(0));
  return ranks_.all_gather(chunk_of(whole, chunk, n), chunk_of(own, chunk, n));
}

TensorParallel::Gathering TensorParallel::start_gather(const Tensor& whole, const ConstTensor& own) const {
  Gathering gathering;
  if (!split().sequence) return gathering;
  for (std::int64_t c = 0; c < split().chunks_of(whole.dim(0)); ++c) {
    gathering.push_back(start_chunk(whole, own, c));
    if (!options_.overlap) gathering.back()->wait();
  }
  return gathering;
}

void TensorParallel::gather(const Tensor& whole, const ConstTensor& own) const {
  Gathering gathering = start_gather(whole, own);
  finish(gathering);
}

void TensorParallel::finish(Gathering& gathering) {
  for (Communicator::Started& chunk : gathering) chunk->wait();
  gathering.clear();
}

void TensorParallel::gather(const Tensor& whole, const ConstTensor& own, const Product& product) const {
  if (!split().sequence) return product(0, whole.dim(0));
  const std::int64_t n = split().chunks_of(whole.dim(0)), each = whole.dim(0) / n;
  // The next chunk is on its way while this one is multiplied.
  Communicator::Started next = start_chunk(whole, own, 0);
  for (std::int64_t c = 0; c < n; ++c) {
    const Communicator::Started here = std::move(next);
    if (options_.overlap && c + 1 < n) next = start_chunk(whole, own, c + 1);
    here->wait();
    product(c * each, each);
    if (!options_.overlap && c + 1 < n) next = start_chunk(whole, own, c + 1);
  }
}

void TensorParallel::sum(const Tensor& own, const Tensor& whole, const Product& product) const {
  const std::int64_t n = split().chunks_of(whole.dim(0)), each = whole.dim(0) / n;
  const Reducing how{.algorithm = options_.algorithm};
  Gathering under_way;
  for (std::int64_t c = 0; c < n; ++c) {
    product(c * each, each);
    under_way.push_back(split().sequence ? ranks_.reduce_scatter(chunk_of(own, c, n), chunk_of(whole, c, n), how)
                                         : ranks_.all_reduce(chunk_of(whole, c, n), how));
    if (!options_.overlap) under_way.back()->wait();
  }
  finish(under_way);
}

void TensorParallel::sum(const Tensor& own, const Tensor& whole) const {
  sum(own, whole, [](std::int64_t, std::int64_t) {});
}

}  // namespace lockstep
