// Which message of which rank needed which: the arrows of a trace.
//
// A receive needs its send. In a collective, everybody needs the rank that came last, the ranks that get something from
// a root need the root, and a root that gets something needs the last of the others. So an arrow begins where nothing
// could be received before: at the start of that message.
#pragma once
#include <span>
#include <vector>

#include "comm/traced.h"
#include "telemetry/trace.h"

namespace lockstep {

struct MessageOfRank {
  int rank = 0;
  TracedMessage message;   // on one clock for all ranks
  bool under_way = false;  // when the trace ended: that is its end here
};

// Places in `messages`. Those that are under way have no arrow to them.
std::vector<TraceArrow> arrows_between(std::span<const MessageOfRank> messages);

}  // namespace lockstep
