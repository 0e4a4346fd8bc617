#include "model/slot_lives.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr int taken_event(ActionKind send) { return send == ActionKind::send_output ? 7 : 8; }
static_assert(slot_event(ActionKind::send_output) == 3 && slot_event(ActionKind::send_input_gradient) == 6);
static_assert(slot_event(Phase::forward) == slot_event(ActionKind::forward) &&
              slot_event(Phase::input) == slot_event(ActionKind::backward_input) &&
              slot_event(Phase::weight) == slot_event(ActionKind::backward_weight));

constexpr std::int64_t kPhasesOfABackward = 2;  // in which what is offloaded comes back

// What happens in the list, in order: `place` is the micro-batch here.
struct HappeningAt {
  SlotHappening what;
  std::size_t action;
};
std::vector<HappeningAt> slot_happenings(const std::vector<Action>& actions, const StepShape& shape) {
  const std::vector<std::size_t> taken_at = sent_by(actions, shape);
  std::vector<std::size_t> sends;  // by when they are taken
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (is_send(actions[i].kind) && is_of_a_micro(actions[i])) sends.push_back(i);
  std::ranges::stable_sort(sends, {}, [&](std::size_t i) { return taken_at[i]; });
  auto sent = sends.begin();
  std::vector<HappeningAt> all;
  const auto end_sends = [&](std::size_t at) {
    for (; sent != sends.end() && taken_at[*sent] == at; ++sent)
      all.push_back({{actions[*sent].micro, actions[*sent].unit, taken_event(actions[*sent].kind)}, at});
  };
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    end_sends(i);
    if (is_of_a_micro(a)) all.push_back({{a.micro, a.unit, slot_event(a.kind)}, i});
  }
  end_sends(actions.size());
  return all;
}

// What is handed from a unit to another: which action takes it in where the one that makes it is elsewhere, and which
// gives it away where the one that needs it is.
struct Handing {
  ActionKind receive, send;
};
Handing handing_of(const SlotSpec& s) {
  if (s.born.phase == Phase::forward) return {ActionKind::receive_input, ActionKind::send_output};
  return {ActionKind::receive_output_gradient, ActionKind::send_input_gradient};
}

}  // namespace

// What is before a place where nothing is in flight and what is after it may share all bytes.
std::vector<Flight> flights_of(const std::vector<Action>& actions, const StepShape& shape) {
  const std::vector<HappeningAt> all_of_them = slot_happenings(actions, shape);
  std::vector<int> left(static_cast<std::size_t>(shape.micro), 0);  // still to come, of each micro-batch
  for (const HappeningAt& h : all_of_them) ++left[static_cast<std::size_t>(h.what.place)];
  std::vector<Flight> all(1);
  std::vector<int> place(static_cast<std::size_t>(shape.micro), -1);  // within its flight
  int in_flight = 0;
  for (auto [h, action] : all_of_them) {
    const int micro = h.place;
    const auto m = static_cast<std::size_t>(micro);
    if (in_flight == 0 && !all.back().all.empty()) all.emplace_back();
    if (place[m] < 0) {
      place[m] = static_cast<int>(all.back().micros.size());
      all.back().micros.push_back(micro);
      ++in_flight;
    }
    h.place = place[m];
    all.back().all.push_back(h);
    all.back().actions.push_back(action);
    if (--left[m] == 0) --in_flight;
  }
  return all;
}

FlightMoments::FlightMoments(const Flight& flight, int units)
    : places_(flight.micros.size()), row_of_(static_cast<std::size_t>(units), -1) {
  int rows = 0;
  for (const SlotHappening& h : flight.all)
    if (int& row = row_of_[static_cast<std::size_t>(h.unit)]; row < 0) row = rows++;
  Events never{};
  never.fill(-1);
  when_.assign(static_cast<std::size_t>(rows) * places_, never);
  for (std::size_t i = 0; i < flight.all.size(); ++i) {
    const auto& [place, unit, event] = flight.all[i];
    when_[row(place, unit)][static_cast<std::size_t>(event)] = static_cast<std::int64_t>(i);
    if (event <= slot_event(Phase::weight)) phases_.push_back(static_cast<std::int64_t>(i));
  }
}

std::size_t FlightMoments::row(int place, int unit) const {
  return static_cast<std::size_t>(row_of_[static_cast<std::size_t>(unit)]) * places_ + static_cast<std::size_t>(place);
}

std::int64_t FlightMoments::of(int place, int unit, int event) const {
  if (row_of_[static_cast<std::size_t>(unit)] < 0) return -1;
  return when_[row(place, unit)][static_cast<std::size_t>(event)];
}

std::int64_t FlightMoments::phase_after(std::int64_t happening) const {
  const auto next = std::ranges::upper_bound(phases_, happening);
  LOCKSTEP_CHECK(next != phases_.end(), "no phase after happening {}", happening);
  return *next;
}

std::int64_t FlightMoments::phase_before(std::int64_t happening, std::int64_t n) const {
  const std::int64_t before = std::ranges::lower_bound(phases_, happening) - phases_.begin();
  return phases_[static_cast<std::size_t>(std::max<std::int64_t>(0, before - n))];
}

SlotAbsence absence_of(const SlotSpec& slot, int place, const FlightMoments& moments) {
  SlotAbsence absence;
  if (slot.offload == SlotOffload::none) return absence;
  const std::int64_t out = moments.of(place, slot.last.unit, slot_event(Phase::forward));
  absence.back = moments.of(place, slot.last.unit, slot_event(Phase::input));
  if (out < 0 || absence.back < 0) return absence;  // evaluation has no backward, and other stages have other units
  absence.left = moments.phase_after(out);
  absence.coming = moments.phase_before(absence.back, kPhasesOfABackward);
  if (absence.left < absence.coming && moments.phase_after(absence.left) < absence.coming) absence.out = out;
  return absence;
}

// Two moments each: the halves of a phase.
SlotLife life_of(const SlotSpec& s, int place, const FlightMoments& moments) {
  const auto at = [&](int unit, int event) { return moments.of(place, unit, event); };
  const auto half = [](Half which) { return static_cast<std::int64_t>(which); };
  const SlotAbsence absence = absence_of(s, place, moments);
  const std::int64_t last = at(s.last.unit, slot_event(s.last.phase));
  if (s.offload == SlotOffload::comes_back) {
    if (!absence.happens()) return {};  // what stays is where it was
    return {.begin = 2 * absence.coming, .end = 2 * last + half(s.last_half)};
  }
  const bool handed = s.last.unit != s.born.unit;
  const std::int64_t made = at(s.born.unit, slot_event(s.born.phase));
  const std::int64_t born =
      made >= 0 || !handed || !s.handed_on ? made : at(s.last.unit, slot_event(handing_of(s).receive));
  if (born < 0) return {};  // evaluation has no backward, and other stages have other units
  // A phase that never comes keeps nothing beyond the one it was born in.
  SlotLife life{.begin = 2 * born + (made >= 0 ? half(s.born_half) : 0),
                .end = last >= 0 ? 2 * last + half(s.last_half) : 2 * born + 1};
  if (absence.happens()) life.end = 2 * absence.left + 1;
  if (!handed) return life;
  // A slot handed to another unit lives until that unit has read it even when the phase it is kept for never comes, or
  // until it has been sent.
  const std::int64_t read = s.born.phase == Phase::forward ? at(s.last.unit, slot_event(Phase::forward)) : -1;
  const std::int64_t taken = at(s.born.unit, taken_event(handing_of(s).send));
  life.end = std::max({life.end, 2 * read + 1, 2 * taken + 1});
  return life;
}

}  // namespace lockstep
