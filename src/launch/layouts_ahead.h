// Layouts for numbers of slots, found before they are needed: a leader that computes for seconds is taken for lost.
//
// A thread of its own finds those that prepare() names, in that order; one that is asked for and not there yet comes
// next. What is found once is kept. Functions may be called from any thread, `find` is called in that one alone; what
// it throws means that there is none.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "launch/epoch_planner.h"

namespace lockstep {

class LayoutsAhead {
 public:
  explicit LayoutsAhead(EpochPlanner::Layouts find);
  ~LayoutsAhead();  // waits for the one that is being found

  void prepare(int slots);
  std::optional<LaunchLayout> get(int slots);

 private:
  void run(const std::stop_token& stop);

  const EpochPlanner::Layouts find_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<int> wanted_;
  std::map<int, std::optional<LaunchLayout>> found_;
  std::jthread thread_;
};

}  // namespace lockstep
