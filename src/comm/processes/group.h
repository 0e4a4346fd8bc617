// A group of ranks as one process sees it, and the window of shared memory of its host's ranks.
//
// The ranks of a host pass numbered barriers: each rank counts the phases it has arrived at, and phase m is complete
// when all of them have arrived. A collective is a row of steps with such a barrier between any two. What a rank writes
// into its slot before phase m is read by others after it and before they arrive at m + 1; it is in half m mod 2 of the
// slot, so it is overwritten no sooner than before m + 2. The last rank to arrive wakes the others.
//
// With several hosts the window also has an inbox for what leaders receive from other hosts, one slot per rank.
#pragma once
#include <deque>
#include <map>
#include <optional>

#include "comm/error.h"
#include "comm/processes/call_record.h"
#include "comm/processes/placement.h"
#include "comm/processes/window.h"
#include "comm/sequence.h"

namespace lockstep::processes {

// What the other ranks of the host see of a rank.
struct RankState {
  alignas(128) std::atomic<std::uint64_t> arrived = 0;  // the last phase
  std::atomic<std::uint32_t> left = 0;                  // has no communicator any more
  // Of an operation without slots (direct_plan.h): whether the rank is at work on a piece, which may be of any rank's
  // tensors; and how many of its share of the pieces are taken, with the phase.
  alignas(128) std::atomic<std::uint32_t> at_work = 0;
  alignas(128) std::atomic<std::uint64_t> claimed = 0;
};

// Messages from one rank to another of its host, in fragments through two halves.
struct Channel {
  static constexpr std::int64_t kBytes = 1 << 18;  // of a half
  static constexpr int kHalves = 2;
  alignas(128) std::atomic<std::uint64_t> written = 0;  // fragments
  alignas(128) std::atomic<std::uint64_t> read = 0;
  alignas(128) char records[kHalves][64] = {};  // of the message that a fragment begins
  char data[kHalves][kBytes] = {};
};

class GroupWindow {
 public:
  struct Extent {
    int ranks, hosts, here;  // here: of this host
    std::int64_t slot_bytes;
  };
  static std::int64_t bytes(const Extent& extent);
  GroupWindow(std::unique_ptr<Mapping> mapping, const Extent& extent);

  SharedFailure& failure() const { return *reinterpret_cast<SharedFailure*>(at(0)); }
  // Whether this host's leader waits for messages with that host's.
  std::atomic<std::uint32_t>& awaited(int host) const {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(at(awaited_))[host];
  }
  // Pieces of an operation without slots, with the phase.
  std::atomic<std::uint64_t>& finished() const { return *reinterpret_cast<std::atomic<std::uint64_t>*>(at(finished_)); }
  RankState& rank_state(int local_rank) const { return reinterpret_cast<RankState*>(at(rank_states_))[local_rank]; }
  char* record(std::uint64_t phase, int rank) const;
  char* slot(std::uint64_t phase, int local_rank) const;
  char* inbox(int rank) const { return at(inbox_ + rank * extent_.slot_bytes); }
  Channel& channel(int from, int to) const {
    return reinterpret_cast<Channel*>(at(channels_))[from * extent_.here + to];
  }
  std::int64_t slot_bytes() const { return extent_.slot_bytes; }

 private:
  struct Layout;
  char* at(std::int64_t offset) const { return mapping_->data() + offset; }

  std::unique_ptr<Mapping> mapping_;
  Extent extent_;
  std::int64_t awaited_, finished_, rank_states_, records_, slots_, inbox_, channels_;
};

class Operation;

struct ProcessGroup {
  std::string name;
  std::vector<int> members;  // ranks of the world
  int rank = 0;              // this process's
  std::uint64_t key = 0;     // the same on all ranks
  Placement placement = {};
  std::vector<ProcessSlot*> processes = {};  // by local rank
  std::vector<int> process_slots = {};       // by rank: its slot on its host
  const SharedFailure* aborted = nullptr;    // the world's
  std::shared_ptr<GroupWindow> window = {};
  std::uint64_t phase = 0;  // the last that a finished collective has arrived at
  std::optional<CommFailure> failure = {};
  Sequence sequence = {};
  int splits = 0;

  // Operations that happen one after the other: the collectives, the sends to one rank, the receives from one.
  struct QueueKey {
    CommOp op;  // any collective: barrier
    int peer;
    auto operator<=>(const QueueKey&) const = default;
  };
  std::map<QueueKey, std::deque<std::shared_ptr<Operation>>> queues = {};

  int size() const { return static_cast<int>(members.size()); }
  int local_rank() const { return placement.local_rank(rank); }
  bool several_hosts() const { return placement.hosts() > 1; }
  // Of messages between hosts: tags of different groups meet only by chance, one in 2^28.
  enum class Kind : std::uint8_t { answer = 1, collective = 2, message = 3 };
  int tag(Kind kind) const { return static_cast<int>(key % (1u << 28)) * 4 + static_cast<int>(kind); }

  bool has_failed() const { return window->failure().failed() || aborted->failed(); }  // as all of this host know it
  bool complete(std::uint64_t phase) const;
  void arrive(std::uint64_t phase);
  void notify_all() const;  // the others of this host
};

}  // namespace lockstep::processes
