// A group of ranks as one process sees it, and the window its host's ranks share.
//
// The ranks of a host meet over and over: each counts the meetings it has come to, and meeting m is over when all have
// come to it. A collective is a row of steps with a meeting between any two. What a rank writes into its slot before
// meeting m is read by others after it and before they come to m + 1; it lies in the half m mod 2 of its slot, so that
// it is overwritten no sooner than before m + 2. The last to come to a meeting rings the others' bells.
//
// With several hosts the window also has an inbox for what leaders receive from other hosts, one slot a rank.
#pragma once
#include <deque>
#include <map>
#include <optional>

#include "comm/error.h"
#include "comm/mpi/call_record.h"
#include "comm/mpi/placement.h"
#include "comm/mpi/window.h"
#include "comm/sequence.h"

namespace lockstep::mpi {

struct Failure {
  std::string what;
  bool secondary = false;  // another rank knows the cause (comm/error.h)
};

struct Seat {
  alignas(128) std::atomic<std::uint64_t> came = 0;  // meetings
  std::atomic<std::uint32_t> left = 0;               // has no communicator any more
  // Of an operation without slots (direct_plan.h): whether the rank has a piece in hand, which may be of any rank's
  // tensors; and how many of its share of the pieces are taken, with the meeting.
  alignas(128) std::atomic<std::uint32_t> at_work = 0;
  alignas(128) std::atomic<std::uint64_t> claimed = 0;
};

// Messages from one rank to another of its host, in chunks through two halves.
struct Channel {
  static constexpr std::int64_t kBytes = 1 << 18;  // of a half
  static constexpr int kHalves = 2;
  alignas(128) std::atomic<std::uint64_t> written = 0;  // chunks
  alignas(128) std::atomic<std::uint64_t> read = 0;
  alignas(128) char records[kHalves][64] = {};  // of the message that a chunk begins
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

  FailureBox& failure() const { return *reinterpret_cast<FailureBox*>(at(0)); }
  // Whether this host's leader waits for messages with that host's.
  std::atomic<std::uint32_t>& awaited(int host) const {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(at(awaited_))[host];
  }
  // Pieces of an operation without slots, with the meeting.
  std::atomic<std::uint64_t>& finished() const { return *reinterpret_cast<std::atomic<std::uint64_t>*>(at(finished_)); }
  Seat& seat(int seat) const { return reinterpret_cast<Seat*>(at(seats_))[seat]; }
  char* record(std::uint64_t meeting, int rank) const;
  char* slot(std::uint64_t meeting, int seat) const;
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
  std::int64_t awaited_, finished_, seats_, records_, slots_, inbox_, channels_;
};

class Operation;

struct Group {
  std::string name;
  std::vector<int> members;  // ranks of the world
  int rank = 0;              // this process's
  std::uint64_t key = 0;     // the same on all ranks
  Placement placement = {};
  std::vector<Citizen*> citizens = {};  // by seat
  std::vector<int> places = {};         // by rank: its place in its host's lobby
  const FailureBox* aborted = nullptr;  // the world's
  std::shared_ptr<GroupWindow> window = {};
  std::uint64_t meeting = 0;  // the last that a finished collective has come to
  std::optional<Failure> failure = {};
  Sequence sequence = {};
  int splits = 0;

  // Operations that happen one after the other: the collectives, the sends to one rank, the receives from one.
  struct Line {
    CommOp op;  // any collective: barrier
    int peer;
    auto operator<=>(const Line&) const = default;
  };
  std::map<Line, std::deque<std::shared_ptr<Operation>>> lines = {};

  int size() const { return static_cast<int>(members.size()); }
  int seat() const { return placement.seat(rank); }
  bool several_hosts() const { return placement.hosts() > 1; }
  // Of MPI's messages: tags of different groups meet only by chance, one in 2^28.
  enum class Kind : std::uint8_t { answer = 1, collective = 2, letter = 3 };
  int tag(Kind kind) const { return static_cast<int>(key % (1u << 28)) * 4 + static_cast<int>(kind); }

  bool has_failed() const { return window->failure().failed() || aborted->failed(); }  // as all of this host know it
  bool met(std::uint64_t meeting) const;
  void come(std::uint64_t meeting);
  void ring_all() const;  // the others of this host
};

}  // namespace lockstep::mpi
