// An independent reader of trace files: what Perfetto and Chrome ask of the trace-event format, and what causality asks
// of messages. It shares no code with what writes and reads traces.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::tests {

struct TraceFacts {
  std::vector<std::string> faults;  // in words; empty: none
  std::int64_t slices = 0, messages = 0, arrows = 0, counters = 0;
  double clock_error = -1;            // seconds; -1: not stated
  std::int64_t earliest_receipt = 0;  // nanoseconds between a send and its receipt, the least of all arrows
};

TraceFacts facts_of_trace(const std::string& text);

}  // namespace lockstep::tests
