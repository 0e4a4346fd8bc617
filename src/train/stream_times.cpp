#include "train/stream_times.h"

#include "base/error.h"

namespace lockstep {

StreamTimes::StreamTimes(Stream& stream, int most) : stream_(stream), steps_(static_cast<std::size_t>(most) + 1) {}

void StreamTimes::add(Step& step, TimeUse use) {
  if (step.used == step.marks.size()) step.marks.push_back({stream_.make_timed_event(), use});
  Mark& mark = step.marks[step.used++];
  mark.use = use;
  stream_.record(*mark.event);
}

void StreamTimes::begin_step() {
  LOCKSTEP_CHECK(begun_ - read_ + 1 < steps_.size(), "{} steps are timed and not read", begun_ - read_);
  Step& step = steps_[begun_ % steps_.size()];
  step.used = 0;
  in_step_ = true;
  add(step, TimeUse::compute);
}

void StreamTimes::mark(TimeUse use) {
  if (in_step_) add(steps_[begun_ % steps_.size()], use);
}

void StreamTimes::end_step() {
  if (!in_step_) return;
  add(steps_[begun_ % steps_.size()], TimeUse::other);
  ++begun_;
  in_step_ = false;
}

StreamStep StreamTimes::read() {
  LOCKSTEP_CHECK(read_ < begun_, "no step is timed");
  Step& step = steps_[read_ % steps_.size()];
  StreamStep times;
  for (std::size_t i = 0; i + 1 < step.used; ++i)
    times.uses[step.marks[i].use] += stream_.seconds_between(*step.marks[i].event, *step.marks[i + 1].event);
  if (read_ > 0)
    times.idle = stream_.seconds_between(steps_[(read_ - 1) % steps_.size()].last(), *step.marks.front().event);
  ++read_;
  return times;
}

}  // namespace lockstep
