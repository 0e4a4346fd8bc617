#include "spec/lifetimes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

int Lifetimes::add(std::int64_t bytes, std::int64_t first, std::int64_t last) {
  LOCKSTEP_CHECK(bytes >= 0 && first <= last, "{} bytes from moment {} to {}", bytes, first, last);
  things_.push_back({round_up(bytes, alignment_), first, last, 0});
  return static_cast<int>(things_.size()) - 1;
}

std::int64_t Lifetimes::place_in_order(const std::vector<int>& order) {
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

std::int64_t Lifetimes::fullest_moment() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // moment and bytes; what ends goes first
  for (const Thing& t : things_) {
    changes.emplace_back(t.first, t.bytes);
    changes.emplace_back(t.last + 1, -t.bytes);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t now = 0, most = 0;
  for (const auto& [moment, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

bool Lifetimes::place_at_both_ends(std::int64_t room) {
  std::vector<int> order(things_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return things_[a].first < things_[b].first; });
  std::vector<int> living;  // by offset
  bool low = true;          // the end that is next
  for (const int id : order) {
    Thing& thing = things_[id];
    std::erase_if(living, [&](int other) { return things_[other].last < thing.first; });
    // The gaps between those that live, the lowest and the highest that are wide enough.
    std::int64_t gap = 0, lowest = -1, highest = -1;
    for (std::size_t i = 0; i <= living.size(); ++i) {
      const std::int64_t end = i < living.size() ? things_[living[i]].offset : room;
      if (end - gap >= thing.bytes) {
        if (lowest < 0) lowest = gap;
        highest = end - thing.bytes;
      }
      if (i < living.size()) gap = std::max(gap, things_[living[i]].offset + things_[living[i]].bytes);
    }
    if (lowest < 0) return false;
    // At the end whose turn it is, if that is free; else at the other; else wherever there is room.
    const bool bottom = lowest == 0, top = highest + thing.bytes == room;
    low = low ? bottom || !top : bottom && !top;
    thing.offset = low || !top ? lowest : highest;
    low = !low;
    living.insert(std::upper_bound(living.begin(), living.end(), id,
                                   [&](int a, int b) { return things_[a].offset < things_[b].offset; }),
                  id);
  }
  return true;
}

std::int64_t Lifetimes::plan() {
  const auto length = [](const Thing& t) { return t.last - t.first + 1; };
  using Before = std::function<bool(const Thing&, const Thing&)>;
  const Before orders[] = {[](const Thing& a, const Thing& b) { return a.bytes > b.bytes; },
                           [](const Thing& a, const Thing& b) { return a.first < b.first; },
                           [&](const Thing& a, const Thing& b) { return length(a) > length(b); },
                           [&](const Thing& a, const Thing& b) { return length(a) * a.bytes > length(b) * b.bytes; }};
  const std::int64_t least = fullest_moment();
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  std::vector<Thing> kept;
  std::vector<int> order(things_.size());
  for (const Before& before : orders) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return before(things_[a], things_[b]); });
    if (const std::int64_t needed = place_in_order(order); needed < best) best = needed, kept = things_;
    if (best == least) break;
    if (&before == orders && place_at_both_ends(least)) return least;
  }
  things_ = std::move(kept);
  return best;
}

}  // namespace lockstep
