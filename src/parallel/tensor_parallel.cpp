#include "parallel/tensor_parallel.h"

namespace lockstep {

namespace {

// Elements of the chunk by rank; none where all have equally many.
Communicator::Counts counts_of(const TensorSplit& split, const Tensor& whole, std::int64_t c) {
  Communicator::Counts counts;
  const std::int64_t rows = whole.dim(0), width = rows > 0 ? whole.elements() / rows : 0;
  if (split.chunk(rows, c).count % split.size == 0) return counts;
  for (TensorSplit of = split; std::ssize(counts) < split.size;) {
    of.rank = std::ssize(counts);
    counts.push_back(of.chunk(rows, c).own_count * width);
  }
  return counts;
}

Tensor all_of(const Tensor& whole, const TensorSplit::RowChunk& chunk) {
  return whole.slice(0, chunk.first, chunk.count);
}
template <class T>
T own_of(const T& own, const TensorSplit::RowChunk& chunk) {
  return own.slice(0, chunk.own_first, chunk.own_count);
}

}  // namespace

TensorParallel::TensorParallel(Communicator& ranks, const Options& options) : ranks_(ranks), options_(options) {
  LOCKSTEP_CHECK(ranks.size() == options.split.size && ranks.rank() == options.split.rank,
                 "rank {} of {} for part {} of {}", ranks.rank(), ranks.size(), options.split.rank, options.split.size);
}

Communicator::Started TensorParallel::start_chunk(const Tensor& whole, const ConstTensor& own,
                                                  std::int64_t chunk) const {
  const TensorSplit::RowChunk rows = split().chunk(whole.dim(0), chunk);
  return ranks_.all_gather(all_of(whole, rows), own_of(own, rows), counts_of(split(), whole, chunk));
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
  const std::int64_t n = split().chunks_of(whole.dim(0));
  // The next chunk is on its way while this one is multiplied.
  Communicator::Started next = start_chunk(whole, own, 0);
  for (std::int64_t c = 0; c < n; ++c) {
    const Communicator::Started here = std::move(next);
    if (options_.overlap && c + 1 < n) next = start_chunk(whole, own, c + 1);
    here->wait();
    const TensorSplit::RowChunk rows = split().chunk(whole.dim(0), c);
    product(rows.first, rows.count);
    if (!options_.overlap && c + 1 < n) next = start_chunk(whole, own, c + 1);
  }
}

void TensorParallel::sum(const Tensor& own, const Tensor& whole, const Product& product) const {
  const std::int64_t n = split().chunks_of(whole.dim(0));
  const Reducing how{.algorithm = options_.algorithm};
  Gathering under_way;
  for (std::int64_t c = 0; c < n; ++c) {
    const TensorSplit::RowChunk rows = split().chunk(whole.dim(0), c);
    product(rows.first, rows.count);
    under_way.push_back(split().sequence ? ranks_.reduce_scatter(own_of(own, rows), all_of(whole, rows), how,
                                                                 counts_of(split(), whole, c))
                                         : ranks_.all_reduce(all_of(whole, rows), how));
    if (!options_.overlap) under_way.back()->wait();
  }
  finish(under_way);
}

void TensorParallel::sum(const Tensor& own, const Tensor& whole) const {
  sum(own, whole, [](std::int64_t, std::int64_t) {});
}

}  // namespace lockstep
