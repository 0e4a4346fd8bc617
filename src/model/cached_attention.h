// A block's attention of new tokens to caches (model/unit.h), each sample to its own, one after another since they are
// of different lengths: its keys and values go behind those that the cache holds, and its queries see all of them.
// Where ranks have the rows of the cache between them, one of these keeps the new ones, and attention is theirs
// together (parallel/split_cache_attention.h).
#pragma once
#include "model/build.h"
#include "model/context_attention.h"

namespace lockstep {

class CachedAttention {
 public:
  using Heads = ContextAttention::Heads;
  // Of so many query heads of such a width.
  CachedAttention(const Build& build, int unit, std::int64_t heads, std::int64_t width);

  // o (B, T, H, D) and lse (B, H, T) as attention gives them; `in` is of the call's tokens.
  void forward(const Tensor& o, const Tensor& lse, const Heads& in, const Call& call) const;

 private:
  void forward_one(const Tensor& o, const Tensor& lse, const Heads& in, const KeyValueCache& cache,
                   const Call& call) const;

  std::int64_t ranks_;
  double scale_;
  Slot parts_ = -1, part_lses_ = -1;  // where there are several
  Slot sums_ = -1;                    // there, in 16 bits
};

}  // namespace lockstep
