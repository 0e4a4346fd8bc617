// The calls of all ranks of one epoch, compared: who called what, who has not come, who cannot come any more.
//
// Records come in each rank's own order, some time after the calls. For every operation the first rank's call is kept
// until all of its ranks have called it, and each later call is compared with it (comm/message.h: agree); for every
// rank its last call is kept. Whatever is wrong is returned as the failure that ends the epoch. What an all_to_all's
// ranks give each other is not added up here: backends do that, or fail. A record that breaks the rules of records (a
// group that was not opened, a number that was there before) is a CommError: the rank that sent it cannot be trusted.
// Memory is bounded: beyond kMostOpen operations that not all ranks have called, the oldest of a group is compared no
// more. One thread at a time.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "comm/control/wire.h"

namespace lockstep::control {

class Calls {
 public:
  using Verdict = std::optional<CommFailure>;
  static constexpr std::size_t kMostOpen = 4096, kMostGroups = 4096;

  explicit Calls(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  Verdict open(int rank, const GroupSpec& spec);
  Verdict close(int rank, std::uint32_t id);
  Verdict note(int rank, std::span<const Record> records);
  // The rank has said goodbye: a failure only where somebody waits for it, now or later.
  Verdict end(int rank);

  // "rank 2 has not come to all_reduce #12 of 'dp'; its last was all_gather #11 of 'dp' (done), heard from 0.4 s ago".
  // `heard` says how long ago a rank was heard from.
  std::string whereabouts(int rank, const Record& about, const std::function<double(int rank)>& heard) const;

 private:
  struct Open {
    int member;  // of the group, whose call it is
    Record call;
    std::size_t arrived;
  };
  struct CallSequence {  // the collectives of a group, or the messages from one of its ranks to another
    std::vector<int> members;
    std::vector<std::uint64_t> started, done;  // by place in members: the last
    std::map<std::uint64_t, Open> open = {};
  };
  struct GroupCalls {
    GroupSpec spec;
    bool someone_is_gone = false;                                // seldom: what it would fail is looked for only then
    std::vector<char> opened = {}, closed = {};                  // by member: has come; comes no more
    std::map<std::pair<int, int>, CallSequence> sequences = {};  // from, to; -1, -1: the collectives
    int ranks() const { return static_cast<int>(spec.members.size()); }
  };
  struct LastCall {
    std::string name;  // of the group
    CommOp op = CommOp::barrier;
    std::uint64_t sequence = 0;  // 0: no call yet
    std::uint32_t group = 0;
    bool done = false;
  };
  struct Rank {
    std::map<std::uint32_t, GroupCalls*> groups = {};  // by the rank's own numbers
    LastCall last = {};
    bool ended = false;
  };

  GroupCalls& group_of(int rank, std::uint32_t id) const;
  static std::pair<int, int> ends_of(int member, const Record& record);
  Verdict start(GroupCalls& group, CallSequence& calls, std::size_t place, const Record& record);
  Verdict fail_if_someone_is_gone(const GroupCalls& group) const;
  std::string last_call(int rank) const;

  std::vector<Rank> ranks_;
  std::map<std::string, std::unique_ptr<GroupCalls>> groups_;  // by key
};

}  // namespace lockstep::control
