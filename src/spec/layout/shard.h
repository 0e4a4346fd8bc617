// One rank's shard of a flat buffer.
//
// Shards are equal and whole blocks of 256 elements (spec/model/parameters.h), so the last ones may reach beyond the
// end: sharded buffers are padded to the size of all shards together. A group of one has the whole buffer, unpadded.
#pragma once
#include <cstdint>

#include "base/integers.h"
#include "spec/model/parameters.h"

namespace lockstep {

struct Shard {
  std::int64_t index = 0, count = 1;

  // Of a buffer of `all` elements: the size of each shard, of all of them together, and where this one begins.
  std::int64_t elements(std::int64_t all) const {
    return count == 1 ? all : round_up(ceil_div(all, count), kParameterAlignment);
  }
  std::int64_t padded(std::int64_t all) const { return count * elements(all); }
  std::int64_t begin(std::int64_t all) const { return index * elements(all); }
};

}  // namespace lockstep
