// The numbers of a communicator's operations: every layer that counts them counts alike.
//
// Collectives of a group are numbered from 1 in the order of the calls. Sends to one rank, and receives from one rank,
// are numbered by themselves, so that the two ends of a message have the same number.
#pragma once
#include <map>
#include <utility>

#include "comm/message.h"

namespace lockstep {

class Sequence {
 public:
  std::uint64_t next(const Message& message) {
    return point_to_point(message.op) ? ++pairs_[{message.op, message.peer}] : ++collectives_;
  }

 private:
  std::uint64_t collectives_ = 0;
  std::map<std::pair<CommOp, int>, std::uint64_t> pairs_;
};

}  // namespace lockstep
