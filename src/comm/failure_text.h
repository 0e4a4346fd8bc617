// The messages of failures between ranks: who did not come, who called something else, who is gone.
//
// Shared by the backends, their wrappers and the control plane, so that one failure reads the same whoever finds it.
// Ranks in these messages are ranks of the world; `group` is a group's name. Pure functions; any thread.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/message.h"

namespace lockstep {

// "#12 of 'dp'".
std::string operation_name(std::uint64_t sequence, const std::string& group);
// "#12 of 'dp', all_reduce of 1000 fp32 (sum, canonical)". `ranks`: of the group.
std::string operation_title(std::uint64_t sequence, const std::string& group, const Message& call, int ranks);

// "mismatched calls at #12 of 'dp': <how>".
std::string mismatch_text(std::uint64_t sequence, const std::string& group, const std::string& how);
// "rank 0 called all_reduce of 12 fp32 (sum, canonical), rank 2 called broadcast of 12 fp32 (root 0)".
struct RankCall {
  int rank;
  const Message& call;
};
std::string different_calls_text(const RankCall& first, const RankCall& second, int ranks);
// "rank 1 has room for 5 elements of an all_to_all in which the ranks together give it 6".
std::string room_text(int rank, std::int64_t room, std::int64_t given);
// The same for the first rank whose room is not what all ranks of the all_to_all give it; "" where there is none.
// Calls are in the order of the group's ranks, `members` are those ranks in the world.
std::string all_to_all_fault(std::span<const Message* const> calls, const std::vector<int>& members);
// A rank splits a group into other parts than the others do.
struct SplitInto {
  std::string name;
  std::size_t ranks;
};
std::string different_splits_text(int rank, const std::string& group, const SplitInto& mine, const SplitInto& others);

// "last in all_reduce #12 of 'dp', not done".
std::string last_call_text(CommOp op, std::uint64_t sequence, const std::string& group, bool done);
// "rank 0: <last_call(0)>; rank 1: …", of at most 16 ranks.
std::string last_calls_text(const std::vector<int>& members, const std::function<std::string(int rank)>& last_call);
inline constexpr const char* kNoCallYet = "no call yet";

// "has", or "have" of several.
inline const char* has_or_have(std::size_t ranks) { return ranks == 1 ? "has" : "have"; }
// " within 30 s".
std::string within_text(double seconds);
// "<title>: ranks 1, 3 have not come<until_when>; <last_calls>".
std::string not_come_text(const std::string& title, const std::vector<int>& missing, const std::string& until_when,
                          const std::string& last_calls);

// "<title>: rank 1 has ended and will not come (<last_call>)".
std::string will_not_come_text(const std::string& title, int rank, const std::string& how,
                               const std::string& last_call = "");
inline constexpr const char *kHasEnded = "has ended", *kHasLeft = "has left the group";
// "rank 1 went away from <title> before it was done".
std::string went_away_text(int rank, const std::string& title);

}  // namespace lockstep
