// Where the time of a step went in a stream that runs ahead of the host.
//
// At every point of a step at which one use follows another, an event is recorded in the stream, and nobody waits for
// it. When the step is done, which the host learns from an event anyway, the times between these events are read. So
// the times are the device's, and measuring adds no synchronization. What was given to the stream as one (a captured
// graph) is not divided.
//
//   times.begin_step();  times.mark(TimeUse::optimizer);  times.end_step();   // as the step is given to the stream
//   times.read();                                                             // when the oldest step is done
//
// Up to `most` steps may be begun and not read. One thread uses it, the stream's; the stream outlives it.
#pragma once
#include <memory>
#include <vector>

#include "telemetry/time_account.h"
#include "tensor/stream.h"

namespace lockstep {

struct StreamStep {
  TimesByUse uses;  // from the step's first work to its last
  double idle = 0;  // seconds from the end of the step before to this one's beginning; 0 of the first
};

class StreamTimes final : public UseMarker {
 public:
  StreamTimes(Stream& stream, int most);

  void begin_step();                // what follows is compute
  void mark(TimeUse use) override;  // between steps it does nothing
  void end_step();
  StreamStep read();

 private:
  struct Mark {
    std::unique_ptr<Event> event;
    TimeUse use;  // of what follows
  };
  struct Step {
    std::vector<Mark> marks;  // made once, used again
    std::size_t used = 0;
    Event& last() { return *marks[used - 1].event; }
  };
  void add(Step& step, TimeUse use);

  Stream& stream_;
  std::vector<Step> steps_;  // one more than can be in flight: the end of the one before is still needed
  std::size_t begun_ = 0, read_ = 0;
  bool in_step_ = false;
};

}  // namespace lockstep
