// The memory that the processes of one host share.
//
// One file in /dev/shm per world and host, unlinked before anything is put into it: nothing is left behind however a
// process ends. It begins with a header, which has a table of groups, and a slot for every process. Each group's window
// is a range after that, claimed by whichever of its ranks comes first and mapped by each of them. Ranges take memory
// only where they were touched, and give it back when the last of their ranks has left.
//
// Everything in it begins as zeros. Counters are atomics; what they announce is written before them.
#pragma once
#include <pthread.h>

#include <memory>
#include <string>

#include "comm/error.h"
#include "comm/processes/wakeup.h"
#include "kernels/tree_sum.h"

namespace lockstep::processes {

// The failure of all ranks of a host: the first to fail writes it.
struct SharedFailure {
  static constexpr std::size_t kMostText = 3000;
  std::atomic<std::uint32_t> state = 0;  // 0 well, 1 being written, 2 failed
  std::uint32_t secondary = 0;
  char text[kMostText] = {};

  bool failed() const { return state.load() == 2; }
  CommFailure get() const { return {text, secondary != 0}; }
  bool write(const CommFailure& failure);  // whether this is now the failure
};

// What the other processes of this host see of a process.
struct ProcessSlot {
  Wakeup wakeup;
  std::atomic<std::int32_t> process = 0;
  std::atomic<std::uint32_t> ended = 0;  // 1: in good order
  // When its progress thread last ran, by the clock that all processes of a host share: every 50 ms at least,
  // where a core is to be had.
  std::atomic<Clock::rep> last_ran = 0;
  bool awake() const { return Clock::now().time_since_epoch() < Clock::duration(last_ran.load()) + kLongestNap; }
  static constexpr auto kLongestNap = std::chrono::seconds(1);
  // Its last call, for error messages; torn only if it is read while it changes.
  std::atomic<std::uint64_t> sequence = 0;  // 0: none yet
  std::atomic<std::uint32_t> op = 0, done = 0;
  char group[48] = {};
};

struct GroupEntry {
  std::uint64_t key = 0;     // 0: free
  std::uint64_t digest = 0;  // of its members and name
  std::uint64_t offset = 0, bytes = 0;
  std::uint32_t ranks = 0, here = 0, left = 0;
  char name[48] = {};
};

// What the processes of a host share beside their slots and the windows of groups.
struct HostHeader {
  static constexpr int kMostGroups = 1024;  // of one host at a time
  pthread_mutex_t mutex;                    // of the table; survives the death of who holds it
  std::uint64_t end = 0;                    // of the file
  SharedFailure aborted;
  // By rank of the world, of other hosts: did not come within the deadline. Such a one is told nothing any more: where
  // its host cannot be reached, MPI would end the process that calls it for the first time.
  std::atomic<std::uint8_t> silent[kMostSummands] = {};
  GroupEntry groups[kMostGroups];
};

// A part of the file as this process sees it.
class Mapping {
 public:
  Mapping(int file, std::uint64_t offset, std::uint64_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  char* data() const { return data_; }

 private:
  char* data_;
  std::uint64_t bytes_;
};

class HostWindow {
 public:
  // The first process of the host makes it, under this name; the others open it; the first then takes the name away.
  HostWindow(const std::string& name, int processes, bool make);
  ~HostWindow();
  void unlink_name();

  HostHeader& header() { return *reinterpret_cast<HostHeader*>(header_->data()); }
  ProcessSlot& process_slot(int index);
  int processes() const { return processes_; }

  struct Claim {
    std::uint64_t key, digest, bytes;
    int ranks, here;  // in all, on this host
    std::string name;
  };
  // The group's range, claimed or found. Null when another rank gave the key to other members: `found` is what it has.
  std::unique_ptr<Mapping> open(const Claim& claim, GroupEntry& found);
  void close(std::uint64_t key) noexcept;

 private:
  class Locked;
  const std::string name_;
  const int processes_;
  bool has_name_;  // and this process takes it away
  int file_ = -1;
  std::unique_ptr<Mapping> header_;
};

}  // namespace lockstep::processes
