// Who updates which weights, and how many copies of the optimizer's state there are: what follows from a layout's
// dp_kind and ZeRO for lists of actions and for checkpoints.
#pragma once
#include <cstdint>

#include "spec/layout/layout_spec.h"

namespace lockstep {

// Every rank updates all its weights or its shard of them, but under central data parallel rank 0 alone, and where
// there are parameter servers these, a shard each.
inline bool rank_updates(const LayoutSpec& layout, std::int64_t rank) {
  if (layout.dp_kind == DpKind::server) return layout.serves(rank);
  return layout.dp_kind == DpKind::ddp || rank == 0;
}

// Every rank updates all the weights that it computes with, so that none have to be sent.
inline bool all_update_all(const LayoutSpec& layout) { return layout.dp_kind == DpKind::ddp && layout.shards() == 1; }

// Whole copies of the optimizer's state, over all ranks, and the one that a rank has a part of.
inline std::int64_t state_copies(const LayoutSpec& layout) {
  return layout.dp_kind == DpKind::ddp ? layout.replicas() / layout.shards() : 1;
}
inline std::int64_t state_copy(const LayoutSpec& layout, std::int64_t rank) {
  return layout.dp_kind == DpKind::ddp ? layout.replica(rank) / layout.shards() : 0;
}

}  // namespace lockstep
