#include "model/slots.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/integers.h"
#include "spec/step/lifetimes.h"

namespace lockstep {

Slot Slots::add(SlotSpec spec) {
  slots_.push_back(std::move(spec));
  const Slot slot = static_cast<Slot>(slots_.size()) - 1;
  again_.push_back(slot);
  return slot;
}

Slot Slots::add_twice(SlotSpec spec) {
  const int unit = spec.born.unit;
  LOCKSTEP_CHECK(spec.born.phase == Phase::forward && spec.last.unit == unit, "two lives of slot '{}'", spec.name);
  const bool scratch = spec.last.phase == Phase::forward;
  SlotSpec second = spec;
  second.name += " again";
  second.born = {unit, Phase::input};
  second.born_half = Half::first;
  if (scratch) second.last = second.born, second.last_half = Half::first;
  spec.last = spec.born;
  if (!scratch) spec.last_half = Half::second;
  const Slot first = add(std::move(spec));
  again_[static_cast<std::size_t>(first)] = add(std::move(second));
  return first;
}

namespace {

// What can happen to a micro-batch in a unit, as a number: a phase, or something handed on, or, of what was sent, that
// it has been taken.
constexpr int kEvents = 9;
constexpr int kNotHanded = static_cast<int>(ActionKind::send_output) - 3;
constexpr int event_of(ActionKind kind) {
  return is_phase(kind) ? static_cast<int>(kind) : static_cast<int>(kind) - kNotHanded;
}
constexpr int taken_event(ActionKind send) { return send == ActionKind::send_output ? 7 : 8; }
static_assert(event_of(ActionKind::send_output) == 3 && event_of(ActionKind::send_input_gradient) == 6);

// Something that happens: to which micro-batch (in a flight: to which place of it), in which unit, and what.
struct Happening {
  int place, unit, event;
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
  std::vector<std::size_t> sends;  // by when they are taken
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (is_send(actions[i].kind) && of_a_micro(actions[i])) sends.push_back(i);
  std::ranges::stable_sort(sends, {}, [&](std::size_t i) { return taken_at[i]; });
  auto sent = sends.begin();
  std::vector<Happening> all;
  const auto end_sends = [&](std::size_t at) {
    for (; sent != sends.end() && taken_at[*sent] == at; ++sent)
      all.push_back({actions[*sent].micro, actions[*sent].unit, taken_event(actions[*sent].kind)});
  };
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    end_sends(i);
    if (of_a_micro(a)) all.push_back({a.micro, a.unit, event_of(a.kind)});
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

constexpr int event_of(Phase phase) { return static_cast<int>(phase); }

// What is handed from a unit to another: which action takes it in where the one that makes it is elsewhere, and which
// gives it away where the one that needs it is.
struct Handing {
  ActionKind receive, send;
};
Handing handing_of(const SlotSpec& s) {
  if (s.born.phase == Phase::forward) return {ActionKind::receive_input, ActionKind::send_output};
  return {ActionKind::receive_output_gradient, ActionKind::send_input_gradient};
}

// When everything of a flight happens.
class Moments {
 public:
  Moments(const Flight& flight, int units)
      : places_(flight.micros.size()), row_of_(static_cast<std::size_t>(units), -1) {
    int rows = 0;
    for (const Happening& h : flight.all)
      if (int& row = row_of_[static_cast<std::size_t>(h.unit)]; row < 0) row = rows++;
    when_.assign(static_cast<std::size_t>(rows) * places_, never());
    for (std::size_t i = 0; i < flight.all.size(); ++i) {
      const auto& [place, unit, event] = flight.all[i];
      when_[row(place, unit)][static_cast<std::size_t>(event)] = static_cast<std::int64_t>(i);
    }
  }
  // -1: it never does.
  std::int64_t of(int place, int unit, int event) const {
    if (row_of_[static_cast<std::size_t>(unit)] < 0) return -1;
    return when_[row(place, unit)][static_cast<std::size_t>(event)];
  }

 private:
  using Events = std::array<std::int64_t, kEvents>;
  static constexpr Events never() {
    Events events{};
    events.fill(-1);
    return events;
  }
  std::size_t row(int place, int unit) const {
    return static_cast<std::size_t>(row_of_[static_cast<std::size_t>(unit)]) * places_ +
           static_cast<std::size_t>(place);
  }

  std::size_t places_;
  std::vector<int> row_of_;  // by unit; -1: nothing happens in it
  std::vector<Events> when_;
};

// What a slot's place takes.
std::int64_t place_bytes(const SlotSpec& s) { return round_up(s.shape.elements() * size_of(s.dtype), kAlignment); }

struct Life {
  std::int64_t begin = -1, end = -1;  // -1: it is never written
};

// Two moments each: the halves of a phase.
Life life_of(const SlotSpec& s, int place, const Moments& moments) {
  const auto at = [&](int unit, int event) { return moments.of(place, unit, event); };
  const bool handed = s.last.unit != s.born.unit;
  const std::int64_t made = at(s.born.unit, event_of(s.born.phase));
  const std::int64_t born = made >= 0 || !handed ? made : at(s.last.unit, event_of(handing_of(s).receive));
  if (born < 0) return {};  // evaluation has no backward, and other stages have other units
  // A phase that never comes keeps nothing beyond the one it was born in.
  const auto half = [](Half which) { return static_cast<std::int64_t>(which); };
  const std::int64_t last = at(s.last.unit, event_of(s.last.phase));
  Life life{.begin = 2 * born + (made >= 0 ? half(s.born_half) : 0),
            .end = last >= 0 ? 2 * last + half(s.last_half) : 2 * born + 1};
  if (!handed) return life;
  // A slot handed to another unit lives until that unit has read it even when the phase it is kept for never comes, or
  // until it has been sent.
  const std::int64_t read = s.born.phase == Phase::forward ? at(s.last.unit, event_of(Phase::forward)) : -1;
  const std::int64_t taken = at(s.born.unit, taken_event(handing_of(s).send));
  life.end = std::max({life.end, 2 * read + 1, 2 * taken + 1});
  return life;
}

// Where every kind of slot of every micro-batch of a flight lies; -1 where it is never written.
struct Places {
  std::vector<std::vector<std::int64_t>> offsets;
  std::int64_t bytes = 0;
};

using Kinds = std::vector<const SlotSpec*>;  // the slots of units that are here

Places place(const Kinds& kinds, const Flight& flight, int units) {
  const Moments moments(flight, units);
  Lifetimes lives(kAlignment);
  Places places{.offsets = std::vector(flight.micros.size(), std::vector<std::int64_t>(kinds.size(), -1))};
  for (std::size_t m = 0; m < flight.micros.size(); ++m)
    for (std::size_t k = 0; k < kinds.size(); ++k)
      if (const Life life = life_of(*kinds[k], static_cast<int>(m), moments); life.begin >= 0)
        places.offsets[m][k] = lives.add(kinds[k]->shape.elements() * size_of(kinds[k]->dtype), life.begin, life.end);
  places.bytes = lives.plan();
  for (std::vector<std::int64_t>& of_micro : places.offsets)
    for (std::int64_t& offset : of_micro)
      if (offset >= 0) offset = lives.offset(static_cast<int>(offset));
  return places;
}

// A list's micro-batches: where each of them lies, and all places there are.
struct Placed {
  std::vector<Places> flights;  // those that run alike are placed once
  std::vector<int> place_of;
  std::int64_t bytes = 0;
};

Placed place_all(const Kinds& kinds, const std::vector<Action>& actions, const StepShape& shape) {
  Placed all;
  std::map<std::vector<Happening>, int> first_place;  // of flights that run so
  all.place_of.resize(shape.micro);
  int next = 0;
  for (const Flight& flight : flights(actions, shape)) {
    const auto [known, is_new] = first_place.try_emplace(flight.all, next);
    if (is_new) {
      all.flights.push_back(place(kinds, flight, shape.units));
      all.bytes = std::max(all.bytes, all.flights.back().bytes);
      next += static_cast<int>(flight.micros.size());
    }
    int here = known->second;
    for (const int m : flight.micros) all.place_of[m] = here++;
  }
  return all;
}

std::vector<Activations> activations_of(Placed& placed, const std::shared_ptr<const Activations::Room>& room) {
  std::vector<Activations> all;
  for (Places& flight : placed.flights)
    for (std::vector<std::int64_t>& offsets : flight.offsets) all.emplace_back(room, std::move(offsets));
  return all;
}

}  // namespace

StepActivations::StepActivations(const Slots& slots, const std::vector<Action>& actions,
                                 const std::vector<Action>& forwards, const StepShape& shape, Memory& memory) {
  static_assert(static_cast<int>(Phase::forward) == static_cast<int>(ActionKind::forward) &&
                static_cast<int>(Phase::input) == static_cast<int>(ActionKind::backward_input) &&
                static_cast<int>(Phase::weight) == static_cast<int>(ActionKind::backward_weight));
  const auto room = std::make_shared<Activations::Room>();
  room->again = slots.again();
  Kinds kinds;
  for (const SlotSpec& s : slots.all()) {
    const bool here = shape.has(s.born.unit) || shape.has(s.last.unit);
    room->kind_of.push_back(here ? static_cast<int>(kinds.size()) : -1);
    if (!here) continue;
    kinds.push_back(&s);
    room->kinds.push_back({s.dtype, s.shape});
  }
  Placed step = place_all(kinds, actions, shape), alone = place_all(kinds, forwards, shape);
  room->buffer = memory.allocate(std::max(step.bytes, alone.bytes), Tag::activation);
  for (auto& [list, placed] : {std::pair{&step_, &step}, {&forwards_, &alone}})
    *list = {.places = activations_of(*placed, room), .place_of = std::move(placed->place_of)};
}

std::vector<std::int64_t> live_bytes(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape) {
  struct Moment {
    std::int64_t born = 0, dies = 0, lives = 0;
  };
  std::vector<std::int64_t> live(actions.size(), 0);
  std::map<Happening, std::size_t> action_of;
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (of_a_micro(actions[i])) action_of[{actions[i].micro, actions[i].unit, event_of(actions[i].kind)}] = i;
  for (const Flight& flight : flights(actions, shape)) {
    const Moments moments(flight, shape.units);
    std::vector<Moment> at(2 * flight.all.size());
    for (std::size_t m = 0; m < flight.micros.size(); ++m)
      for (const SlotSpec& s : slots.all()) {
        const Life life = life_of(s, static_cast<int>(m), moments);
        if (life.begin < 0) continue;
        at[static_cast<std::size_t>(life.begin)].born += place_bytes(s);
        at[static_cast<std::size_t>(life.end)].dies += place_bytes(s);
      }
    std::int64_t now = 0;
    for (Moment& moment : at) {
      moment.lives = now += moment.born;
      now -= moment.dies;
    }
    for (std::size_t i = 0; i < flight.all.size(); ++i) {
      Happening h = flight.all[i];
      h.place = flight.micros[static_cast<std::size_t>(h.place)];
      const auto action = action_of.find(h);
      if (action == action_of.end()) continue;  // what was sent has been taken
      live[action->second] = std::max(at[2 * i].lives, at[2 * i + 1].lives);
      const std::int64_t after = at[2 * i + 1].lives - at[2 * i + 1].dies;
      for (std::size_t a = action->second + 1; a < actions.size() && !of_a_micro(actions[a]); ++a) live[a] = after;
    }
  }
  return live;
}

std::vector<LiveSlot> live_slots(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape,
                                 std::size_t action) {
  std::size_t phase = action;  // that it is, or comes after
  while (phase > 0 && !of_a_micro(actions[phase])) --phase;
  const Action& a = actions[phase];
  if (!of_a_micro(a)) return {};
  for (const Flight& flight : flights(actions, shape)) {
    const auto place = std::ranges::find(flight.micros, a.micro);
    if (place == flight.micros.end()) continue;
    const Happening here{static_cast<int>(place - flight.micros.begin()), a.unit, event_of(a.kind)};
    const auto at = std::ranges::find(flight.all, here);
    if (at == flight.all.end()) continue;
    const std::int64_t half = 2 * (at - flight.all.begin());
    const Moments moments(flight, shape.units);
    // In the first half, in the second, and after it.
    std::array<std::vector<LiveSlot>, 3> lives;
    std::array<std::int64_t, 3> bytes{};
    for (std::size_t m = 0; m < flight.micros.size(); ++m)
      for (std::size_t s = 0; s < slots.all().size(); ++s) {
        const SlotSpec& spec = slots.all()[s];
        const Life life = life_of(spec, static_cast<int>(m), moments);
        const LiveSlot live{static_cast<Slot>(s), flight.micros[m], place_bytes(spec)};
        for (std::size_t i = 0; i < 3; ++i) {
          const std::int64_t begin = std::min<std::int64_t>(half + static_cast<std::int64_t>(i), half + 1);
          const std::int64_t end = half + static_cast<std::int64_t>(i);
          if (life.begin < 0 || life.begin > begin || life.end < end) continue;
          lives[i].push_back(live);
          bytes[i] += live.bytes;
        }
      }
    return phase != action ? lives[2] : bytes[0] >= bytes[1] ? lives[0] : lives[1];
  }
  return {};
}

}  // namespace lockstep
