// What one step of each rank sends: recorded of real ranks, and of any rank of any world on meta.
#pragma once
#include <array>
#include <map>
#include <vector>

#include "comm/recorder.h"
#include "train/replica.h"

namespace lockstep::tests {

// Calls, elements sent and received, and messages, by op and type; seconds left out.
using Sent = std::map<std::pair<CommOp, DType>, std::array<std::int64_t, 4>>;

struct Recorded {
  Sent sent;
  std::vector<std::int64_t> owned = {};  // elements by unit, as the layouts have them
  std::int64_t stored = 0;               // Ψ: of all of them

  std::int64_t elements(CommOp op, DType type) const {
    const auto at = sent.find({op, type});
    return at == sent.end() ? 0 : at->second[1];
  }
};

std::vector<Recorded> on_threads(const Replica::Options& options);
Recorded on_meta(const Replica::Options& options, int rank);

}  // namespace lockstep::tests
