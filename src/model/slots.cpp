#include "model/slots.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "spec/lifetimes.h"

namespace lockstep {

Slot Slots::add(SlotSpec spec) {
  slots_.push_back(std::move(spec));
  return static_cast<Slot>(slots_.size()) - 1;
}

namespace {

// One call of a unit within a flight: the micro-batch as its place among those of the flight, the unit, the phase.
using PhaseCall = std::tuple<int, int, Phase>;

// Micro-batches that are in flight together, in the order they begin, and their calls in order.
struct Flight {
  std::vector<int> micros;
  std::vector<PhaseCall> calls;
};

// Cuts the list wherever nothing is in flight: what is before such a place and what is after it may share all bytes.
std::vector<Flight> flights(const std::vector<Action>& actions, int micro) {
  std::vector<int> left(micro, 0);  // calls still to come, of each micro-batch
  for (const Action& a : actions)
    if (is_phase(a.kind)) ++left[a.micro];
  std::vector<Flight> all(1);
  std::vector<int> place(micro, -1);  // within its flight
  int in_flight = 0;
  for (const Action& a : actions) {
    if (!is_phase(a.kind)) continue;
    if (in_flight == 0 && !all.back().calls.empty()) all.emplace_back();
    if (place[a.micro] < 0) {
      place[a.micro] = static_cast<int>(all.back().micros.size());
      all.back().micros.push_back(a.micro);
      ++in_flight;
    }
    all.back().calls.emplace_back(place[a.micro], a.unit, static_cast<Phase>(a.kind));
    if (--left[a.micro] == 0) --in_flight;
  }
  return all;
}

// Where every slot of every micro-batch of a flight lies; -1 where it is never written.
struct Places {
  std::vector<std::vector<std::int64_t>> offsets;
  std::int64_t bytes = 0;
};

Places place(const Slots& slots, const Flight& flight) {
  std::map<PhaseCall, std::int64_t> when;
  for (std::size_t i = 0; i < flight.calls.size(); ++i) when[flight.calls[i]] = static_cast<std::int64_t>(i);
  Lifetimes lives(kAlignment);
  const int count = static_cast<int>(flight.micros.size());
  std::vector<std::vector<int>> ids(count, std::vector<int>(slots.all().size(), -1));
  for (int m = 0; m < count; ++m)
    for (std::size_t i = 0; i < ids[m].size(); ++i) {
      const SlotSpec& s = slots.all()[i];
      const auto born = when.find({m, s.born.unit, s.born.phase}), last = when.find({m, s.last.unit, s.last.phase});
      if (born == when.end()) continue;  // evaluation has no backward: the slot is never written
      // Two moments a call: its halves. A phase that never comes keeps nothing beyond the one it was born in.
      const auto half = [](Half which) { return static_cast<std::int64_t>(which); };
      const std::int64_t begin = 2 * born->second + half(s.born_half);
      const std::int64_t end = last == when.end() ? 2 * born->second + 1 : 2 * last->second + half(s.last_half);
      // A slot handed to another unit lives until that unit has read it even when the phase it is kept for never
      // comes.
      const auto read = when.find({m, s.last.unit, Phase::forward});
      const bool handed = s.born.phase == Phase::forward && s.last.unit != s.born.unit && read != when.end();
      ids[m][i] =
          lives.add(s.shape.elements() * size_of(s.dtype), begin, std::max(end, handed ? 2 * read->second + 1 : end));
    }
  Places places;
  places.bytes = lives.plan();
  for (const std::vector<int>& of_micro : ids) {
    auto& offsets = places.offsets.emplace_back();
    for (const int id : of_micro) offsets.push_back(id < 0 ? -1 : lives.offset(id));
  }
  return places;
}

}  // namespace

StepActivations::StepActivations(const Slots& slots, const std::vector<Action>& actions, int micro, Memory& memory) {
  static_assert(static_cast<int>(Phase::forward) == static_cast<int>(ActionKind::forward) &&
                static_cast<int>(Phase::input) == static_cast<int>(ActionKind::backward_input) &&
                static_cast<int>(Phase::weight) == static_cast<int>(ActionKind::backward_weight));
  // Flights that run alike are placed once.
  std::map<std::vector<PhaseCall>, int> first_place;
  std::vector<Places> kinds;
  place_of_.resize(micro);
  for (const Flight& flight : flights(actions, micro)) {
    const auto [known, is_new] = first_place.try_emplace(flight.calls, static_cast<int>(first_place.size()));
    if (is_new) kinds.push_back(place(slots, flight));
    int before = 0;  // places of the kinds before this one
    for (int k = 0; k < known->second; ++k) before += static_cast<int>(kinds[k].offsets.size());
    for (const int m : flight.micros) place_of_[m] = before++;
  }
  std::int64_t bytes = 0;
  for (const Places& kind : kinds) bytes = std::max(bytes, kind.bytes);
  buffer_ = memory.allocate(bytes, Tag::activation);
  for (const Places& kind : kinds)
    for (const std::vector<std::int64_t>& offsets : kind.offsets) {
      std::vector<Tensor> tensors(offsets.size());
      for (std::size_t i = 0; i < offsets.size(); ++i)
        if (offsets[i] >= 0) {
          const SlotSpec& s = slots.all()[i];
          tensors[i] = view(buffer_, s.dtype, s.shape, offsets[i] / size_of(s.dtype));
        }
      places_.emplace_back(std::move(tensors));
    }
}

}  // namespace lockstep
