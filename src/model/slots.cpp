#include "model/slots.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/integers.h"
#include "model/slot_lives.h"
#include "spec/step/lifetimes.h"

namespace lockstep {

Shape Activations::Room::Kind::shape_of(const RowExtent& extent) const {
  if (rows == SlotRows::fixed) return shape;
  const bool own = rows == SlotRows::own;
  const std::int64_t used = own ? extent.own : extent.tokens, room = own ? extent.own_room : extent.room;
  if (used == room) return shape;
  const std::int64_t all = shape[rows_dim];  // of any size that its layer makes of the tokens
  LOCKSTEP_CHECK(all * used % room == 0, "{} rows for {} of {} tokens", all, used, room);
  std::array<std::int64_t, Shape::kMaxDims> dims{};
  for (int i = 0; i < shape.dims(); ++i) dims[static_cast<std::size_t>(i)] = shape[i];
  dims[static_cast<std::size_t>(rows_dim)] = all * used / room;
  return Shape(std::span(dims).first(static_cast<std::size_t>(shape.dims())));
}

Slot Slots::add(SlotSpec spec) {
  if (phases_are_whole_) spec.born_half = Half::first, spec.last_half = Half::second;
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

Slot Slots::add_offloaded(SlotSpec spec) {
  LOCKSTEP_CHECK(spec.born.phase == Phase::forward && spec.last.phase != Phase::forward, "slot '{}' offloaded",
                 spec.name);
  SlotSpec second = spec;
  second.born = {spec.last.unit, Phase::input};
  second.born_half = Half::first;
  second.offload = SlotOffload::comes_back;
  spec.offload = SlotOffload::goes;
  const Slot first = add(std::move(spec));
  again_[static_cast<std::size_t>(first)] = add(std::move(second));
  return first;
}

Slot Slots::add_scratch(const std::string& name, std::int64_t bytes, Moment when, Half half) {
  const auto known = std::ranges::find_if(slots_, [&](const SlotSpec& s) { return s.born == when && s.name == name; });
  if (known == slots_.end()) return add({name, DType::f8e4m3, {bytes}, when, when, half, half});
  known->shape = {std::max(bytes, known->shape.elements())};
  return static_cast<Slot>(known - slots_.begin());
}

namespace {

// What a slot's place takes.
std::int64_t place_bytes(const SlotSpec& s, std::int64_t alignment) {
  return round_up(s.shape.elements() * size_of(s.dtype), alignment);
}

// The slots of units that are here.
struct Kinds {
  std::vector<const SlotSpec*> specs;
  std::vector<std::pair<int, int>> offloaded;  // of those: the first life and the second, which may be the first's
  std::int64_t alignment;
};

// Where every kind of slot of every micro-batch of a flight lies; -1 where it is never written. And what is elsewhere
// for a while: when, and where.
struct Places {
  struct Absent {
    int place, first, second;  // of the flight's micro-batches; kinds
    SlotAbsence when;
    std::int64_t elsewhere;
  };
  std::vector<std::vector<std::int64_t>> offsets;
  std::int64_t bytes = 0;
  std::vector<Absent> absent;
  std::int64_t elsewhere_bytes = 0;
};

// Of kinds that live beside another micro-batch of the flight: what is handed on, and what a backward finds of its
// forward where others come between.
std::vector<bool> beside_others(const Kinds& kinds, const Flight& flight, int units) {
  const FlightMoments moments(flight, units);
  std::vector<bool> beside(kinds.specs.size(), false);
  for (std::size_t m = 0; m < flight.micros.size(); ++m)
    for (std::size_t k = 0; k < kinds.specs.size(); ++k) {
      const SlotLife life = life_of(*kinds.specs[k], static_cast<int>(m), moments);
      for (std::int64_t i = life.begin < 0 ? 1 : life.begin / 2; i <= (life.begin < 0 ? 0 : life.end / 2); ++i) {
        const SlotHappening& h = flight.all[static_cast<std::size_t>(i)];
        if (h.place != static_cast<int>(m) || h.event > slot_event(Phase::weight)) beside[k] = true;
      }
    }
  return beside;
}

// `in_turn`: the flight's micro-batches are followed by others at the same places, with no gap between them.
Places place(const Kinds& kinds, const Flight& flight, int units, bool in_turn) {
  const FlightMoments moments(flight, units);
  const std::vector<bool> always =
      in_turn ? beside_others(kinds, flight, units) : std::vector<bool>(kinds.specs.size(), false);
  Lifetimes lives(kinds.alignment), elsewhere(kinds.alignment);
  const std::size_t count = kinds.specs.size();
  Places places{.offsets = std::vector(flight.micros.size(), std::vector<std::int64_t>(count, -1)), .absent = {}};
  const auto bytes = [&](std::size_t k) { return kinds.specs[k]->shape.elements() * size_of(kinds.specs[k]->dtype); };
  for (std::size_t m = 0; m < flight.micros.size(); ++m) {
    for (std::size_t k = 0; k < count; ++k)
      if (const SlotLife life = life_of(*kinds.specs[k], static_cast<int>(m), moments); life.begin >= 0)
        places.offsets[m][k] = always[k] ? lives.add(bytes(k), 0, 2 * std::ssize(flight.all) - 1)
                                         : lives.add(bytes(k), life.begin, life.end);
    // It is written after the forward, and has been read when the input phase begins.
    for (const auto& [first, second] : kinds.offloaded)
      if (const SlotAbsence when = absence_of(*kinds.specs[first], static_cast<int>(m), moments); when.happens())
        places.absent.push_back(
            {static_cast<int>(m), first, second, when,
             elsewhere.add(bytes(static_cast<std::size_t>(first)), 2 * when.out + 1, 2 * when.back)});
  }
  places.bytes = lives.plan();
  places.elsewhere_bytes = elsewhere.plan();
  for (Places::Absent& one : places.absent) one.elsewhere = elsewhere.offset(static_cast<int>(one.elsewhere));
  for (std::vector<std::int64_t>& of_micro : places.offsets) {
    for (std::int64_t& offset : of_micro)
      if (offset >= 0) offset = lives.offset(static_cast<int>(offset));
    for (const auto& [first, second] : kinds.offloaded)
      if (of_micro[second] < 0) of_micro[second] = of_micro[first];  // it stays
  }
  return places;
}

// A list's micro-batches: where each of them lies, and all places there are.
struct Placed {
  std::vector<Places> flights;  // those that run alike are placed once
  std::vector<int> place_of;
  std::int64_t bytes = 0, elsewhere_bytes = 0;
  struct Run {
    std::size_t flight;                // of `flights`
    std::vector<std::size_t> actions;  // Flight::actions
  };
  std::vector<Run> runs;  // of all that fly
};

Placed place_all(const Kinds& kinds, const std::vector<Action>& actions, const StepShape& shape, bool in_turn = false) {
  Placed all;
  struct First {
    std::size_t flight;
    int place;
  };
  std::map<std::vector<SlotHappening>, First> first_of;  // of flights that run so
  all.place_of.resize(shape.micro);
  int next = 0;
  for (Flight& flight : flights_of(actions, shape)) {
    const auto [known, is_new] = first_of.try_emplace(flight.all, First{all.flights.size(), next});
    if (is_new) {
      all.flights.push_back(place(kinds, flight, shape.units, in_turn));
      all.bytes = std::max(all.bytes, all.flights.back().bytes);
      all.elsewhere_bytes = std::max(all.elsewhere_bytes, all.flights.back().elsewhere_bytes);
      next += static_cast<int>(flight.micros.size());
    }
    int here = known->second.place;
    for (const int m : flight.micros) all.place_of[m] = here++;
    all.runs.push_back({known->second.flight, std::move(flight.actions)});
  }
  return all;
}

// Of a list, in the buffer.
std::vector<StepActivations::Move> moves_of(const Placed& placed, const Activations::Room& room) {
  std::vector<StepActivations::Move> moves;
  for (const Placed::Run& run : placed.runs) {
    const Places& places = placed.flights[run.flight];
    const auto action = [&](std::int64_t happening) { return run.actions[static_cast<std::size_t>(happening)]; };
    for (const Places::Absent& one : places.absent) {
      const std::vector<std::int64_t>& offsets = places.offsets[static_cast<std::size_t>(one.place)];
      const auto& [dtype, shape, rows, rows_dim] = room.kinds[static_cast<std::size_t>(one.first)];
      const auto at = [&](int kind) {
        return view(room.buffer, dtype, {shape.elements()},
                    (room.begin + offsets[static_cast<std::size_t>(kind)]) / size_of(dtype));
      };
      moves.push_back({.out = true,
                       .begin = action(one.when.out) + 1,
                       .end = action(one.when.left + 1),
                       .here = at(one.first),
                       .elsewhere = one.elsewhere});
      moves.push_back({.out = false,
                       .begin = action(one.when.coming),
                       .end = action(one.when.back),
                       .here = at(one.second),
                       .elsewhere = one.elsewhere});
    }
  }
  return moves;
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
  set_up(slots, {.actions = actions, .shape = shape}, false, forwards, shape, memory);
}

StepActivations::StepActivations(const Slots& slots, const InTurn& turn, const std::vector<Action>& forwards,
                                 const StepShape& shape, Memory& memory) {
  set_up(slots, turn, true, forwards, shape, memory);
}

void StepActivations::set_up(const Slots& slots, const InTurn& list, bool in_turn, const std::vector<Action>& forwards,
                             const StepShape& shape, Memory& memory) {
  const auto room = std::make_shared<Activations::Room>();
  room->again = slots.again();
  Kinds kinds{.specs = {}, .offloaded = {}, .alignment = slots.alignment()};
  for (const SlotSpec& s : slots.all()) {
    const bool here = shape.has(s.born.unit) || shape.has(s.last.unit);
    room->kind_of.push_back(here ? static_cast<int>(kinds.specs.size()) : -1);
    if (!here) continue;
    kinds.specs.push_back(&s);
    room->kinds.push_back({s.dtype, s.shape, s.rows, s.rows_dim});
  }
  for (std::size_t i = 0; i < slots.all().size(); ++i) {
    const int second = room->kind_of[static_cast<std::size_t>(slots.again()[i])];
    if (slots.all()[i].offload == SlotOffload::goes && second >= 0)
      kinds.offloaded.emplace_back(room->kind_of[i], second);
  }
  Placed step = place_all(kinds, list.actions, list.shape, in_turn), alone = place_all(kinds, forwards, shape);
  const std::int64_t bytes = std::max(step.bytes, alone.bytes);
  // Memory begins at multiples of kAlignment.
  room->buffer = memory.allocate(bytes + (kinds.alignment - kAlignment), Tag::activation);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(room->buffer.data()));
  room->begin = round_up(address, kinds.alignment) - address;
  moves_ = moves_of(step, *room);
  elsewhere_bytes_ = step.elsewhere_bytes;
  for (auto& [list, placed] : {std::pair{&step_, &step}, {&forwards_, &alone}})
    *list = {.places = activations_of(*placed, room), .place_of = std::move(placed->place_of)};
}

std::vector<std::int64_t> live_bytes(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape) {
  struct Moment {
    std::int64_t born = 0, dies = 0, lives = 0;
  };
  std::vector<std::int64_t> live(actions.size(), 0);
  std::map<SlotHappening, std::size_t> action_of;
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (is_of_a_micro(actions[i])) action_of[{actions[i].micro, actions[i].unit, slot_event(actions[i].kind)}] = i;
  for (const Flight& flight : flights_of(actions, shape)) {
    const FlightMoments moments(flight, shape.units);
    std::vector<Moment> at(2 * flight.all.size());
    for (std::size_t m = 0; m < flight.micros.size(); ++m)
      for (const SlotSpec& s : slots.all()) {
        const SlotLife life = life_of(s, static_cast<int>(m), moments);
        if (life.begin < 0) continue;
        at[static_cast<std::size_t>(life.begin)].born += place_bytes(s, slots.alignment());
        at[static_cast<std::size_t>(life.end)].dies += place_bytes(s, slots.alignment());
      }
    std::int64_t now = 0;
    for (Moment& moment : at) {
      moment.lives = now += moment.born;
      now -= moment.dies;
    }
    for (std::size_t i = 0; i < flight.all.size(); ++i) {
      SlotHappening h = flight.all[i];
      h.place = flight.micros[static_cast<std::size_t>(h.place)];
      const auto action = action_of.find(h);
      if (action == action_of.end()) continue;  // what was sent has been taken
      live[action->second] = std::max(at[2 * i].lives, at[2 * i + 1].lives);
      const std::int64_t after = at[2 * i + 1].lives - at[2 * i + 1].dies;
      for (std::size_t a = action->second + 1; a < actions.size() && !is_of_a_micro(actions[a]); ++a) live[a] = after;
    }
  }
  return live;
}

std::vector<LiveSlot> live_slots(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape,
                                 std::size_t action) {
  std::size_t phase = action;  // that it is, or comes after
  while (phase > 0 && !is_of_a_micro(actions[phase])) --phase;
  const Action& a = actions[phase];
  if (!is_of_a_micro(a)) return {};
  for (const Flight& flight : flights_of(actions, shape)) {
    const auto place = std::ranges::find(flight.micros, a.micro);
    if (place == flight.micros.end()) continue;
    const SlotHappening here{static_cast<int>(place - flight.micros.begin()), a.unit, slot_event(a.kind)};
    const auto at = std::ranges::find(flight.all, here);
    if (at == flight.all.end()) continue;
    const std::int64_t half = 2 * (at - flight.all.begin());
    const FlightMoments moments(flight, shape.units);
    // In the first half, in the second, and after it.
    std::array<std::vector<LiveSlot>, 3> lives;
    std::array<std::int64_t, 3> bytes{};
    for (std::size_t m = 0; m < flight.micros.size(); ++m)
      for (std::size_t s = 0; s < slots.all().size(); ++s) {
        const SlotSpec& spec = slots.all()[s];
        const SlotLife life = life_of(spec, static_cast<int>(m), moments);
        const LiveSlot live{static_cast<Slot>(s), flight.micros[m], place_bytes(spec, slots.alignment())};
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
