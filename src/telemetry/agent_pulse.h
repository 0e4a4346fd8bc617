// The sign of life that a process of ranks gives the agent which has started it: one byte per second, without the disk.
//
// The agent opens a pipe or a socket, lets the process inherit its write end and names that descriptor in the variable
// LOCKSTEP_AGENT_FD. A thread of its own writes one byte as soon as it begins and then one per second, for all ranks of
// the process, until this is destroyed: while ranks start, load, train, save, evaluate and end. It does nothing else,
// so no disk and no message can hold it. Five seconds of silence mean that the process is stopped or its host hangs;
// the end of the process is told by the closed descriptor. What its ranks are doing is told by heartbeat.h.
//
// A full pipe, and any other error of writing, is ignored; the thread ends when nobody can read any more. No SIGPIPE is
// raised. The descriptor gets O_CLOEXEC and O_NONBLOCK, and the variable is removed, so that no child of this process
// takes it for its own.
//
// Make it first in a process, before there are other threads. Without the variable, or where it names no open pipe or
// socket that can be written to (mpirun closes what it does not know), nothing is done.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep {

inline constexpr const char* kAgentDescriptor = "LOCKSTEP_AGENT_FD";

class AgentPulse {
 public:
  explicit AgentPulse(std::chrono::nanoseconds period = std::chrono::seconds(1));
  ~AgentPulse();
  AgentPulse(const AgentPulse&) = delete;
  AgentPulse& operator=(const AgentPulse&) = delete;

  bool beats() const { return descriptor_ >= 0; }

 private:
  void run(std::chrono::nanoseconds period);

  int descriptor_ = -1;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;  // by mutex_
  std::thread thread_;
};

}  // namespace lockstep
