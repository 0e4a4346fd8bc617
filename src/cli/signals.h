// Signals as a wish to end, for commands that have something to bring to an end.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <thread>

namespace lockstep {

// From now on SIGINT, SIGTERM and these others (spec/run/stop_signals.h) set the flag that is returned. A second SIGINT
// or SIGTERM ends the process at once with 130, unless it is the same one within a fifth of a second, as timeout(1)
// sends it, to the process and to its group; the others never do, since a scheduler sends one of them as a warning and
// SIGTERM some seconds later, when the save may still be under way. A signal that is ignored when the process starts,
// as nohup does with SIGHUP and a shell with the SIGINT of a job in the background, stays ignored.
const std::atomic<bool>& listen_for_signals(std::span<const std::string> others = {});

// The first signal that was heard ("SIGUSR1"); empty: none.
std::string signal_heard();

// While it lives: whoever presses Ctrl-C on a terminal and waits kPatience for the end of the step is told on standard
// error that the run has heard it, and what a second one does. A thread of its own looks and writes, since a handler
// may not and the thread that trains is busy.
class StopNotice {
 public:
  static constexpr std::chrono::milliseconds kPatience{300};
  StopNotice();
  ~StopNotice();
  StopNotice(const StopNotice&) = delete;
  StopNotice& operator=(const StopNotice&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;  // by mutex_
  std::thread thread_;
};

// A second signal also leaves a line here, beside standard error's; -1: nowhere.
void tell_second_signal(int descriptor);

}  // namespace lockstep
