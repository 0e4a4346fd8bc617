// Streams and events: the order in which work happens.
//
// Work given to one stream happens in the order given. An Event marks a point in a stream; another stream, or the host,
// can wait for it. On the cpu, compute runs inline, in the thread that asks: a cpu::Stream is always idle when a call
// returns. On meta nothing runs and the stream counts. On a GPU every call returns at once and the work follows: the
// stream runs ahead of the host, who learns of a step's result when an event says that it is there. A stream belongs to
// one thread at a time; an Event may be waited for from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/device.h"

namespace lockstep {

class Event {
 public:
  virtual ~Event() = default;
  virtual bool done() = 0;  // true when never recorded
  virtual void wait() = 0;  // returns when the point has been reached
};

// Work given to a stream once and kept, to be given again as a whole: the same calls on the same tensors.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void run() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  virtual std::unique_ptr<Event> make_event() = 0;
  // An event that keeps when it was reached.
  virtual std::unique_ptr<Event> make_timed_event() { return make_event(); }
  // Seconds between two of them, both reached; 0 on devices whose time is the host's.
  virtual double seconds_between(Event& /*first*/, Event& /*second*/) { return 0; }
  virtual void record(Event& event) = 0;  // reached when all work given to this stream so far is done
  virtual void wait(Event& event) = 0;    // work given from now on starts after the event
  virtual void synchronize() = 0;         // returns when all work given so far is done

  virtual bool runs_ahead() const { return false; }  // calls return before their work is done
  // Keeps the work that `work` gives to this stream, and runs none of it; nothing on devices that gain nothing by it.
  // Everything it needs has been made by an earlier run (libraries' plans, code that loads when first used).
  virtual std::unique_ptr<Replay> capture(const std::function<void()>& /*work*/) { return nullptr; }
  // Names the work in between for a profiler that watches.
  virtual void begin_range(const char* /*name*/) {}
  virtual void end_range() {}

 protected:
  explicit Stream(Device device) : device_(device) {}

 private:
  Device device_;
};

}  // namespace lockstep
