// A call as other processes can read it: what all ranks must agree on, without the tensors themselves.
//
// A record is a CallRecord, followed by room for one count per rank, so records of one group are all of one size. After
// that is where the rank's tensors are, as its plan writes it (collective_plan.cpp, direct_plan.cpp): ranks need not
// agree on that.
#pragma once
#include <span>
#include <string>

#include "comm/message.h"

namespace lockstep::processes {

struct CallRecord {
  std::uint64_t sequence;
  std::int64_t in, out;  // elements; -1: none
  std::int32_t peer;
  std::int32_t counts;  // 0, or one for each rank
  std::uint8_t op, dtype, reduction, algorithm, unused[4];
};

std::int64_t record_bytes(int ranks);
std::int64_t location_in_record(int ranks);  // where in a record the tensors' locations are
inline constexpr std::int64_t kLocationBytes = 64;
void write_record(char* to, const Message& message, std::uint64_t sequence);
// With tensors that have the sizes and types of the call's, and nothing in them.
Message read_record(const char* from);

// What is wrong with these calls of all ranks, the same message on all of them; "" when they are of one operation.
// `names` are the ranks' in the world.
std::string mismatch_of(std::span<const char* const> records, const std::vector<int>& names, const std::string& group);

}  // namespace lockstep::processes
