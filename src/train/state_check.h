// Compares the hashes of what several ranks hold alike (train/state_hashes.h), and says whose are wrong.
//
// A summary travels first: for each kind of state, where in the model it is and a sum of its hashes. Only where those
// of one place differ do all hashes travel, with their names. Of the ranks that hold an entry, those are blamed that
// differ from what more than half of them have; where there is no such majority, nobody is.
//
// All ranks call compare_state() at the same point, with the same step, and are told the same.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/state_hashes.h"

namespace lockstep {

struct StateDifference {
  std::vector<int> blamed;  // ranks, ascending; none: nobody can say
  std::string text;         // one line, which begins with the first of them
};

// Nothing: all that is held alike is equal. `ranks` are on the host.
std::optional<StateDifference> compare_state(Communicator& ranks, std::span<const StateHashes::Entry> entries,
                                             std::span<const StateHash> hashes, std::int64_t step);

// Of one rank, as the others learn of it.
struct ToldState {
  struct Entry {
    std::uint64_t place;
    StateHash hash;
    std::string name;
  };
  std::string host;
  std::vector<Entry> entries;
};
StateDifference explain_difference(std::span<const ToldState> by_rank, std::int64_t step);

}  // namespace lockstep
