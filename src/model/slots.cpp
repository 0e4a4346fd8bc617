#include "model/slots.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "spec/lifetimes.h"

namespace lockstep {

Slot Slots::add(SlotSpec spec) {
  slots_.push_back(std::move(spec));
  return static_cast<Slot>(slots_.size()) - 1;
}

namespace {

// Something that happens to a micro-batch within a flight: the micro-batch as its place among those of the flight, the
// unit, and what it is. What was sent has been taken when the action says `taken`.
struct Happening {
  int place, unit;
  ActionKind kind;
  bool taken = false;
  auto operator<=>(const Happening&) const = default;
};

// Micro-batches that are in flight together, in the order they begin, and what happens to them in order.
struct Flight {
  std::vector<int> micros;
  std::vector<Happening> all;
};

bool of_a_micro(const Action& a) { return is_phase(a.kind) || is_handed_on(a.kind); }

// What happens in the list, in order: `place` is the micro-batch here.
std::vector<Happening> happenings(const std::vector<Action>& actions, const StepShape& shape) {
  const std::vector<std::size_t> taken_at = sent_by(actions, shape);
  std::multimap<std::size_t, Happening> taken;
  std::vector<Happening> all;
  const auto end_sends = [&](std::size_t at) {
    for (auto [one, last] = taken.equal_range(at); one != last; ++one) all.push_back(one->second);
  };
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    end_sends(i);
    if (!of_a_micro(a)) continue;
    all.push_back({a.micro, a.unit, a.kind});
    if (is_send(a.kind)) taken.insert({taken_at[i], {a.micro, a.unit, a.kind, true}});
  }
  end_sends(actions.size());
  return all;
}

// Cuts the list wherever nothing is in flight: what is before such a place and what is after it may share all bytes.
std::vector<Flight> flights(const std::vector<Action>& actions, const StepShape& shape) {
  const std::vector<Happening> all_of_them = happenings(actions, shape);
  std::vector<int> left(shape.micro, 0);  // still to come, of each micro-batch
  for (const Happening& h : all_of_them) ++left[h.place];
  std::vector<Flight> all(1);
  std::vector<int> place(shape.micro, -1);  // within its flight
  int in_flight = 0;
  for (Happening h : all_of_them) {
    const int micro = h.place;
    if (in_flight == 0 && !all.back().all.empty()) all.emplace_back();
    if (place[micro] < 0) {
      place[micro] = static_cast<int>(all.back().micros.size());
      all.back().micros.push_back(micro);
      ++in_flight;
    }
    h.place = place[micro];
    all.back().all.push_back(h);
    if (--left[micro] == 0) --in_flight;
  }
  return all;
}

// Where every slot of every micro-batch of a flight lies; -1 where it is never written.
struct Places {
  std::vector<std::vector<std::int64_t>> offsets;
  std::int64_t bytes = 0;
};

constexpr ActionKind action_of(Phase phase) { return static_cast<ActionKind>(phase); }

// What is handed from a unit to another: which action takes it in where the one that makes it is elsewhere, and which
// gives it away where the one that needs it is.
struct Handing {
  ActionKind receive, send;
};
Handing handing_of(const SlotSpec& s) {
  if (s.born.phase == Phase::forward) return {ActionKind::receive_input, ActionKind::send_output};
  return {ActionKind::receive_output_gradient, ActionKind::send_input_gradient};
}

Places place(const Slots& slots, const Flight& flight) {
  std::map<Happening, std::int64_t> when;
  for (std::size_t i = 0; i < flight.all.size(); ++i) when[flight.all[i]] = static_cast<std::int64_t>(i);
  Lifetimes lives(kAlignment);
  const int count = static_cast<int>(flight.micros.size());
  std::vector<std::vector<int>> ids(count, std::vector<int>(slots.all().size(), -1));
  for (int m = 0; m < count; ++m)
    for (std::size_t i = 0; i < ids[m].size(); ++i) {
      const SlotSpec& s = slots.all()[i];
      const auto at = [&](int unit, ActionKind kind, bool taken = false) -> std::optional<std::int64_t> {
        const auto found = when.find({m, unit, kind, taken});
        return found == when.end() ? std::nullopt : std::optional(found->second);
      };
      const bool handed = s.last.unit != s.born.unit;
      const auto made = at(s.born.unit, action_of(s.born.phase));
      const auto born = made || !handed ? made : at(s.last.unit, handing_of(s).receive);
      if (!born) continue;  // evaluation has no backward, and other stages have other units: the slot is never written
      // Two moments each: the halves of a phase. A phase that never comes keeps nothing beyond the one it was born in.
      const auto half = [](Half which) { return static_cast<std::int64_t>(which); };
      const auto last = at(s.last.unit, action_of(s.last.phase));
      const std::int64_t begin = 2 * *born + (made ? half(s.born_half) : 0);
      std::int64_t end = last ? 2 * *last + half(s.last_half) : 2 * *born + 1;
      // A slot handed to another unit lives until that unit has read it even when the phase it is kept for never
      // comes, or until it has been sent.
      if (handed)
        for (const auto& until : {s.born.phase == Phase::forward ? at(s.last.unit, ActionKind::forward) : std::nullopt,
                                  at(s.born.unit, handing_of(s).send, true)})
          if (until) end = std::max(end, 2 * *until + 1);
      ids[m][i] = lives.add(s.shape.elements() * size_of(s.dtype), begin, end);
    }
  Places places;
  places.bytes = lives.plan();
  for (const std::vector<int>& of_micro : ids) {
    auto& offsets = places.offsets.emplace_back();
    for (const int id : of_micro) offsets.push_back(id < 0 ? -1 : lives.offset(id));
  }
  return places;
}

// A list's micro-batches: where each of them lies, and all places there are.
struct Placed {
  std::vector<Places> kinds;  // flights that run alike are placed once
  std::vector<int> place_of;
  std::int64_t bytes = 0;
};

Placed place_all(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape) {
  Placed all;
  std::map<std::vector<Happening>, int> first_place;
  all.place_of.resize(shape.micro);
  for (const Flight& flight : flights(actions, shape)) {
    const auto [known, is_new] = first_place.try_emplace(flight.all, static_cast<int>(first_place.size()));
    if (is_new) all.kinds.push_back(place(slots, flight));
    int before = 0;  // places of the kinds before this one
    for (int k = 0; k < known->second; ++k) before += static_cast<int>(all.kinds[k].offsets.size());
    for (const int m : flight.micros) all.place_of[m] = before++;
  }
  for (const Places& kind : all.kinds) all.bytes = std::max(all.bytes, kind.bytes);
  return all;
}

std::vector<Activations> views(const Slots& slots, const Placed& placed, const Buffer& buffer) {
  std::vector<Activations> all;
  for (const Places& kind : placed.kinds)
    for (const std::vector<std::int64_t>& offsets : kind.offsets) {
      std::vector<Tensor> tensors(offsets.size());
      for (std::size_t i = 0; i < offsets.size(); ++i)
        if (offsets[i] >= 0) {
          const SlotSpec& s = slots.all()[i];
          tensors[i] = view(buffer, s.dtype, s.shape, offsets[i] / size_of(s.dtype));
        }
      all.emplace_back(std::move(tensors));
    }
  return all;
}

}  // namespace

StepActivations::StepActivations(const Slots& slots, const std::vector<Action>& actions,
                                 const std::vector<Action>& forwards, const StepShape& shape, Memory& memory) {
  static_assert(static_cast<int>(Phase::forward) == static_cast<int>(ActionKind::forward) &&
                static_cast<int>(Phase::input) == static_cast<int>(ActionKind::backward_input) &&
                static_cast<int>(Phase::weight) == static_cast<int>(ActionKind::backward_weight));
  Placed step = place_all(slots, actions, shape), alone = place_all(slots, forwards, shape);
  buffer_ = memory.allocate(std::max(step.bytes, alone.bytes), Tag::activation);
  for (auto& [list, placed] : {std::pair{&step_, &step}, {&forwards_, &alone}})
    *list = {.places = views(slots, *placed, buffer_), .place_of = std::move(placed->place_of)};
}

}  // namespace lockstep
