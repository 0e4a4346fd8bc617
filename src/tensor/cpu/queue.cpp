#include "tensor/cpu/queue.h"

namespace lockstep::cpu {

void Queue::submit(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(work));
  ++submitted_;
  changed_.notify_all();
}

bool Queue::run_one() {
  std::unique_lock lock(mutex_);
  if (running_ || pending_.empty()) return false;
  const std::function<void()> work = std::move(pending_.front());
  pending_.pop_front();
  running_ = true;
  lock.unlock();
  // Counted as done even when it throws, or whoever waits for a later piece would wait for ever.
  struct Done {
    Queue& queue;
    ~Done() {
      const std::lock_guard lock(queue.mutex_);
      queue.running_ = false;
      ++queue.done_;
      queue.changed_.notify_all();
    }
  } done{*this};
  work();
  return true;
}

bool Queue::finished(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  return done_ >= ticket;
}

void Queue::wait_for(std::uint64_t ticket) {
  while (!finished(ticket)) {
    if (run_one()) continue;
    std::unique_lock lock(mutex_);  // another thread runs the piece before ours
    changed_.wait(lock, [&] { return done_ >= ticket || (!running_ && !pending_.empty()); });
  }
}

std::unique_ptr<Event> Queue::make_event() { return std::make_unique<QueuePoint>(); }

void Queue::record(Event& event) {
  const std::lock_guard lock(mutex_);
  static_cast<QueuePoint&>(event).set(this, submitted_);
}

void Queue::wait(Event& event) {
  submit([&event] { event.wait(); });
}

void Queue::synchronize() {
  std::uint64_t ticket;
  {
    const std::lock_guard lock(mutex_);
    ticket = submitted_;
  }
  wait_for(ticket);
}

}  // namespace lockstep::cpu
