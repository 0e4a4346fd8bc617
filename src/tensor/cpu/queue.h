// A queue of work beside the compute stream, for communication and I/O.
//
// submit() only appends. Work runs in order, one piece at a time, in whichever thread waits for it: an Event's wait(),
// a stream's synchronize(), or run_one(). So a rank needs no extra thread for what it must wait for anyway, and many
// ranks can share few cores. submit() and record() are for the owning thread, waiting for any. An exception thrown by a
// piece of work reaches the thread that ran it; the piece counts as done.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "tensor/stream.h"

namespace lockstep::cpu {

class Queue final : public lockstep::Stream {
 public:
  Queue() : lockstep::Stream(Device::cpu) {}

  void submit(std::function<void()> work);
  bool run_one();  // runs the oldest piece not yet taken; false when there is none

  std::unique_ptr<Event> make_event() override;
  void record(Event& event) override;
  void wait(Event& event) override;  // work submitted from now on first waits for the event
  void synchronize() override;

 private:
  friend class QueuePoint;
  bool finished(std::uint64_t ticket);
  void wait_for(std::uint64_t ticket);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> pending_;
  std::uint64_t submitted_ = 0;
  std::uint64_t done_ = 0;
  bool running_ = false;
};

// The event of both kinds of cpu stream: a number of finished pieces in a queue, or a point already passed.
class QueuePoint final : public Event {
 public:
  bool done() override { return !queue_ || queue_->finished(ticket_); }
  void wait() override {
    if (queue_) queue_->wait_for(ticket_);
  }
  void set(Queue* queue, std::uint64_t ticket) {
    queue_ = queue;
    ticket_ = ticket;
  }

 private:
  Queue* queue_ = nullptr;
  std::uint64_t ticket_ = 0;
};

}  // namespace lockstep::cpu
