#include "launch/layouts_ahead.h"

#include <algorithm>
#include <exception>

namespace lockstep {

LayoutsAhead::LayoutsAhead(EpochPlanner::Layouts find)
    : find_(std::move(find)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

LayoutsAhead::~LayoutsAhead() {
  thread_.request_stop();
  thread_.join();
}

void LayoutsAhead::prepare(int slots) {
  const std::lock_guard lock(mutex_);
  if (found_.contains(slots) || std::ranges::find(wanted_, slots) != wanted_.end()) return;
  wanted_.push_back(slots);
  changed_.notify_all();
}

std::optional<LaunchLayout> LayoutsAhead::get(int slots) {
  std::unique_lock lock(mutex_);
  if (!found_.contains(slots)) {
    wanted_.push_front(slots);
    changed_.notify_all();
    changed_.wait(lock, [&] { return found_.contains(slots); });
  }
  return found_.at(slots);
}

void LayoutsAhead::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !wanted_.empty(); })) {
    const int slots = wanted_.front();
    wanted_.pop_front();
    if (found_.contains(slots)) continue;
    lock.unlock();
    std::optional<LaunchLayout> layout;
    try {
      layout = find_(slots);
    } catch (const std::exception&) {  // of a run that cannot be planned
    }
    lock.lock();
    found_.emplace(slots, std::move(layout));
    changed_.notify_all();
  }
}

}  // namespace lockstep
