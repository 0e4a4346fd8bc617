#include "model/cached_attention.h"

#include <cmath>

#include "kernels/attention.h"
#include "kernels/heads.h"
#include "parallel/split_cache_attention.h"

namespace lockstep {

CachedAttention::CachedAttention(const Build& b, int unit, std::int64_t heads, std::int64_t width)
    : ranks_(b.how.cache_ranks), scale_(1 / std::sqrt(static_cast<double>(width))) {
  if (ranks_ == 1) return;
  const Moment forward{unit, Phase::forward};
  const DType sums = accumulator_of(b.dtype);
  // The first half of a block's forward.
  const auto slot = [&](const char* name, DType dtype, const Shape& shape) {
    return b.slots.add({name, dtype, shape, forward, forward, Half::first, Half::first});
  };
  parts_ = slot("attention to each rank's rows", b.dtype, {ranks_, b.T * heads * width});
  part_lses_ = slot("lse of each rank's rows", sums, {ranks_, b.T * heads});
  if (b.dtype != sums) sums_ = slot("attention in sums", sums, {1, b.T, heads, width});
}

namespace {

void append(const CachedAttention::Heads& in, const KeyValueCache& cache, Stream& stream) {
  const std::int64_t T = in.k.dim(1);
  LOCKSTEP_CHECK(cache.length + T <= cache.k.dim(1), "{} tokens behind {} in a cache of {}", T, cache.length,
                 cache.k.dim(1));
  copy_heads({.y = cache.k.slice(1, cache.length, T), .x = in.k}, stream);
  copy_heads({.y = cache.v.slice(1, cache.length, T), .x = in.v}, stream);
}

}  // namespace

void CachedAttention::forward(const Tensor& o, const Tensor& lse, const Heads& in, const Call& call) const {
  LOCKSTEP_CHECK(!call.batch.training, "a cache in training");
  for (std::int64_t b = 0; b < o.dim(0); ++b) {
    const auto sample = [&](const Tensor& x) { return x.slice(0, b, 1); };
    forward_one(sample(o), sample(lse), {sample(in.q), sample(in.k), sample(in.v)}, call.caches[b], call);
  }
}

void CachedAttention::forward_one(const Tensor& o, const Tensor& lse, const Heads& in, const KeyValueCache& cache,
                                  const Call& call) const {
  LOCKSTEP_CHECK((cache.ranks ? cache.ranks->size() : 1) == ranks_ && (cache.keeps || ranks_ > 1),
                 "a cache of {} ranks in a model for {}", cache.ranks ? cache.ranks->size() : 1, ranks_);
  if (cache.keeps) append(in, cache, call.stream);
  const std::int64_t rows = cache.length + (cache.keeps ? in.k.dim(1) : 0);
  const Tensor k = rows > 0 ? cache.k.slice(1, 0, rows) : Tensor{}, v = rows > 0 ? cache.v.slice(1, 0, rows) : Tensor{};
  if (ranks_ == 1)
    return attention_forward({.o = o, .lse = lse, .q = in.q, .k = k, .v = v, .scale = scale_}, call.stream);
  split_cache_attention({.o = o,
                         .lse = lse,
                         .q = in.q,
                         .k = k,
                         .v = v,
                         .own = cache.keeps,
                         .scale = scale_,
                         .parts = call.at[parts_],
                         .part_lses = call.at[part_lses_],
                         .sums = sums_ >= 0 ? call.at[sums_] : Tensor{}},
                        *cache.ranks, call.stream);
}

}  // namespace lockstep
