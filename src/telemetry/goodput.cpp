#include "telemetry/goodput.h"

#include <algorithm>
#include <cmath>

#include "telemetry/event_log.h"
#include "telemetry/json_line.h"

namespace lockstep {

namespace {

// Of two times the later one, where one may not be known.
double later(double a, double b) { return std::fmax(a, b); }
double seconds_between(double from, double until) {
  return known(from) && known(until) ? std::max(0.0, until - from) : 0;
}

}  // namespace

void GoodputAccount::forget_steps() { steps_ = {}; }

void GoodputAccount::add_step(double time, double seconds) {
  if (known(seconds) && seconds > 0) steps_.seconds += seconds;
  if (!known(time)) return;
  if (!known(steps_.first)) steps_.first = known(seconds) ? time - seconds : time;
  steps_.last = later(steps_.last, time);
}

// A try begins to train. What was before it, since the last step that stays, is lost, recovery, or nobody's.
void GoodputAccount::start(const RunEvent& event) {
  Events& e = events_;
  const double set_up = known(event.seconds) ? std::max(0.0, event.seconds) : 0, began = event.time - set_up;
  if (!known(e.begun)) {
    e.begun = began;
    e.sums.set_up += set_up;
  } else {
    double done = later(e.held_until, e.started);
    if (event.lost) {
      e.sums.lost += seconds_between(later(event.lost->from, e.held_until), event.lost->until);
      e.sums.lost_steps += event.lost->steps;
      done = later(e.held_until, event.lost->until);
    }
    done = later(done, e.ended);
    if (e.restarts) {
      const double waited = seconds_between(later(e.waits_since, done), known(e.waits_since) ? began : kUnknown);
      e.sums.waiting += waited;
      e.sums.recovery += std::max(0.0, seconds_between(done, event.time) - waited);
      ++e.sums.restarts;
    } else {
      e.sums.stopped += seconds_between(done, began);
      e.sums.set_up += std::min(set_up, seconds_between(done, event.time));
    }
  }
  e.started = event.time;
  e.ended = e.waits_since = e.told = kUnknown;
  e.restarts = false;
}

void GoodputAccount::add_event(const RunEvent& event) {
  if (!known(event.time)) return;
  Events& e = events_;
  const double seconds = known(event.seconds) ? std::max(0.0, event.seconds) : 0;
  if (event.decision == name_of(Decision::go_on)) return;  // the run does
  if (event.kind == "fault") {
    e.told = event.time;
  } else if (event.kind == "decision") {
    e.told = event.time;
    e.restarts = event.decision != "end";
    if (event.decision == "wait" && !known(e.waits_since)) e.waits_since = event.time;
  } else if (!event.is_of_keeper()) {
    return;  // it speaks for all
  } else if (event.kind == "start") {
    start(event);
  } else if (event.kind == "save") {
    e.sums.saves += seconds;
    e.held_until = later(e.held_until, event.time + seconds);
  } else if (event.kind == "evaluation") {
    e.sums.evaluations += seconds;
    e.held_until = later(e.held_until, event.time);
  } else if (event.kind == "end") {
    e.ended = event.time;
  }
}

std::optional<Goodput> GoodputAccount::value(double now, bool running) const {
  const Events& e = events_;
  const double begun = known(e.begun) ? e.begun : steps_.first;
  if (!known(begun)) return std::nullopt;
  Goodput all = e.sums;
  all.steps = steps_.seconds;
  const double done = later(later(steps_.last, e.held_until), later(e.started, e.ended));
  double until = done;
  // Since a fault that nothing has followed yet.
  if (known(e.told) && (e.restarts || e.told > done)) {
    until = running ? later(now, done) : later(e.told, done);
    const double waited = known(e.waits_since) ? seconds_between(later(e.waits_since, done), until) : 0;
    all.waiting += waited;
    all.recovery += std::max(0.0, seconds_between(done, until) - waited);
  }
  all.whole = seconds_between(begun, until);
  double sum = 0;
  for (const auto& [name, seconds] : all.parts()) sum += seconds;
  all.other = std::max(0.0, all.whole - sum);
  all.whole = std::max(all.whole, sum);
  return all;
}

std::optional<Goodput> GoodputReader::update(double now, bool running) {
  const FollowedLines::Marks marks{.made = [&] { at_marks_.push_back(account_.steps_); },
                                   .back =
                                       [&](std::size_t kept) {
                                         at_marks_.resize(kept);
                                         account_.steps_ = at_marks_.back();
                                       }};
  const auto anew = [&] {
    at_marks_.clear();
    account_.forget_steps();
  };
  metrics_.read(
      anew,
      [&](std::string_view line) {
        double time = kUnknown, ms = kUnknown;
        const bool whole = read_json_line(line, [&](JsonKeys keys, const JsonScalar& value) {
          if (keys.size() != 1) return;
          if (keys[0] == "time") time = number_in(value).value_or(kUnknown);
          if (keys[0] == "step_ms") ms = number_in(value).value_or(kUnknown);
        });
        if (whole && known(ms)) account_.add_step(time, ms * 1e-3);  // an evaluation has none
      },
      &marks);
  events_.read([&] { account_.forget_events(); },
               [&](std::string_view line) {
                 if (const auto event = read_run_event(line)) account_.add_event(*event);
               });
  return account_.value(now, running);
}

}  // namespace lockstep
