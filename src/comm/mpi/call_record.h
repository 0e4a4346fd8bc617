// A call as other processes can read it: what all ranks must agree on, without the tensors themselves.
//
// A record is a CallRecord and, behind it, room for one count a rank, so records of one group are all of one size.
// Behind that is where the rank's tensors lie, as its plan has it (plan.cpp, direct_plan.cpp): on that nobody need
// agree.
#pragma once
#include <span>
#include <string>

#include "comm/message.h"

namespace lockstep::mpi {

struct CallRecord {
  std::uint64_t sequence;
  std::int64_t in, out;  // elements; -1: none
  std::int32_t peer;
  std::int32_t counts;  // 0, or one for each rank
  std::uint8_t op, dtype, reduction, algorithm, unused[4];
};

std::int64_t record_bytes(int ranks);
std::int64_t lying_in_record(int ranks);  // where in a record that is
inline constexpr std::int64_t kLyingBytes = 64;
void write_record(char* to, const Message& message, std::uint64_t sequence);
// With tensors that have the sizes and types of the call's, and nothing in them.
Message read_record(const char* from);

// What is wrong with these calls of all ranks, in the words that all of them say; "" when they are of one operation.
// `names` are the ranks' in the world.
std::string mismatch_of(std::span<const char* const> records, const std::vector<int>& names, const std::string& group);

}  // namespace lockstep::mpi
