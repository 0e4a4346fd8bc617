#include "spec/lifetimes.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

int Lifetimes::add(std::int64_t bytes, std::int64_t first, std::int64_t last) {
  LOCKSTEP_CHECK(bytes >= 0 && first <= last, "{} bytes from moment {} to {}", bytes, first, last);
  things_.push_back({round_up(bytes, alignment_), first, last, 0});
  return static_cast<int>(things_.size()) - 1;
}

std::int64_t Lifetimes::plan() {
  std::vector<int> order(things_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return things_[a].bytes > things_[b].bytes; });

  std::vector<int> placed;  // by offset
  std::int64_t total = 0;
  for (const int id : order) {
    Thing& thing = things_[id];
    std::int64_t at = 0;
    for (const int other : placed) {
      const Thing& t = things_[other];
      if (t.last < thing.first || t.first > thing.last) continue;
      if (t.offset >= at + thing.bytes) break;  // the gap before it is wide enough
      at = std::max(at, t.offset + t.bytes);
    }
    thing.offset = at;
    total = std::max(total, at + thing.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id,
                                   [&](int a, int b) { return things_[a].offset < things_[b].offset; }),
                  id);
  }
  return total;
}

}  // namespace lockstep
