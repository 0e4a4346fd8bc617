#include "spec/step/lifetimes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

namespace {

constexpr std::size_t kFew = 4096;         // things of which every pair may be compared
constexpr std::int64_t kFewTogether = 16;  // that live at a time
constexpr std::int64_t kShort = 16;        // moments: what lives no longer is placed separately

// Indices of things ordered by one of their moments; ties stay in order.
template <class Thing, class Moment>
std::vector<int> in_order_of(const std::vector<Thing>& things, Moment&& moment) {
  std::int64_t latest = -1;
  for (const Thing& t : things) latest = std::max(latest, moment(t));
  std::vector<int> before(static_cast<std::size_t>(latest + 2), 0);
  for (const Thing& t : things) ++before[static_cast<std::size_t>(moment(t) + 1)];
  std::partial_sum(before.begin(), before.end(), before.begin());
  std::vector<int> order(things.size());
  for (std::size_t i = 0; i < things.size(); ++i)
    order[static_cast<std::size_t>(before[static_cast<std::size_t>(moment(things[i]))]++)] = static_cast<int>(i);
  return order;
}

// Places of one size: as many as live at a time, each taken over by whatever comes next.
struct PlacesOfSize {
  std::int64_t bytes = 0, begin = 0, count = 0;
  std::vector<std::int64_t> free = {};

  std::int64_t take() {
    if (free.empty()) return count++;
    const std::int64_t place = free.back();
    free.pop_back();
    return place;
  }
};

}  // namespace

int Lifetimes::add(std::int64_t bytes, std::int64_t first, std::int64_t last) {
  LOCKSTEP_CHECK(bytes >= 0 && first >= 0 && first <= last, "{} bytes from moment {} to {}", bytes, first, last);
  things_.push_back({round_up(bytes, alignment_), first, last, 0});
  return static_cast<int>(things_.size()) - 1;
}

std::int64_t Lifetimes::place_in_order(const std::vector<int>& order, std::int64_t less_than) {
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
    if (total >= less_than) return total;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id,
                                   [&](int a, int b) { return things_[a].offset < things_[b].offset; }),
                  id);
  }
  return total;
}

template <class Size>
std::int64_t Lifetimes::most_at_a_time(Size&& size) const {
  std::vector<std::int64_t> changes;  // by moment
  for (const Thing& t : things_) {
    if (std::ssize(changes) < t.last + 2) changes.resize(static_cast<std::size_t>(t.last + 2), 0);
    changes[static_cast<std::size_t>(t.first)] += size(t);
    changes[static_cast<std::size_t>(t.last + 1)] -= size(t);
  }
  std::int64_t now = 0, most = 0;
  for (const std::int64_t change : changes) most = std::max(most, now += change);
  return most;
}

std::int64_t Lifetimes::fullest_moment() const {
  return most_at_a_time([](const Thing& t) { return t.bytes; });
}

std::vector<int> Lifetimes::by_birth() const {
  return in_order_of(things_, [](const Thing& t) { return t.first; });
}

bool Lifetimes::place_at_both_ends(std::int64_t room) {
  std::vector<int> living;  // by offset
  bool low = true;          // the end that is next
  for (const int id : by_birth()) {
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

std::int64_t Lifetimes::place_by_size() {
  std::map<std::int64_t, PlacesOfSize> sizes;
  std::vector<PlacesOfSize*> of(things_.size(), nullptr);  // none: it is short-lived
  for (std::size_t i = 0; i < things_.size(); ++i) {
    const Thing& t = things_[i];
    if (t.last - t.first < kShort) continue;
    of[i] = &sizes[t.bytes];
    of[i]->bytes = t.bytes;
  }
  const std::vector<int> deaths = in_order_of(things_, [](const Thing& t) { return t.last; });
  std::vector<int> living;  // of the short-lived, by offset
  std::int64_t room = 0;    // of them
  const auto lower = [&](int a, int b) { return things_[a].offset < things_[b].offset; };
  auto dead = deaths.begin();
  for (const int id : by_birth()) {
    Thing& thing = things_[id];
    for (; things_[*dead].last < thing.first; ++dead) {
      if (of[*dead])
        of[*dead]->free.push_back(things_[*dead].offset);
      else
        living.erase(std::ranges::find(living, *dead));
    }
    if (of[id]) {
      thing.offset = of[id]->take();
      continue;
    }
    thing.offset = 0;
    for (const int other : living) {
      if (things_[other].offset >= thing.offset + thing.bytes) break;
      thing.offset = std::max(thing.offset, things_[other].offset + things_[other].bytes);
    }
    room = std::max(room, thing.offset + thing.bytes);
    living.insert(std::upper_bound(living.begin(), living.end(), id, lower), id);
  }
  for (auto& [bytes, places] : sizes) {
    places.begin = room;
    room += bytes * places.count;
  }
  for (std::size_t i = 0; i < things_.size(); ++i)
    if (of[i]) things_[i].offset = of[i]->begin + things_[i].offset * of[i]->bytes;
  return room;
}

std::int64_t Lifetimes::plan() {
  const auto length = [](const Thing& t) { return t.last - t.first + 1; };
  using Before = std::function<bool(const Thing&, const Thing&)>;
  const Before orders[] = {[](const Thing& a, const Thing& b) { return a.bytes > b.bytes; },
                           [](const Thing& a, const Thing& b) { return a.first < b.first; },
                           [&](const Thing& a, const Thing& b) { return length(a) > length(b); },
                           [&](const Thing& a, const Thing& b) { return length(a) * a.bytes > length(b) * b.bytes; }};
  std::int64_t best = place_by_size();
  const std::int64_t least = fullest_moment();
  if (best == least) return best;
  std::vector<Thing> kept = things_;
  if (most_at_a_time([](const Thing&) { return std::int64_t{1}; }) <= kFewTogether && place_at_both_ends(least))
    return least;
  if (things_.size() > kFew) {
    things_ = std::move(kept);
    return best;
  }
  std::vector<int> order(things_.size());
  for (const Before& before : orders) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return before(things_[a], things_[b]); });
    if (const std::int64_t needed = place_in_order(order, best); needed < best) best = needed, kept = things_;
    if (best == least) break;
    if (&before == orders && place_at_both_ends(least)) return least;
  }
  things_ = std::move(kept);
  return best;
}

}  // namespace lockstep
