// What one rank sends in a step, by operation and type, from the record of its messages.
//
// Numbers go apart from tensors: counts, losses, the norm's bins and the step's controls are of 8 bytes each and fewer
// than any stored parameter has elements, so a log needs no name for them.
#pragma once
#include <span>
#include <vector>

#include "comm/comm_log.h"

namespace lockstep {

struct SentMessages {
  std::int64_t calls = 0;
  std::int64_t sent = 0;  // elements
  std::int64_t received = 0;
  std::int64_t bytes_sent = 0;
  bool operator==(const SentMessages&) const = default;
  SentMessages& operator+=(const SentMessages& other);
};

struct StepMessages {
  struct Row {
    CommOp op;
    DType dtype;
    SentMessages of;
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> tensors;  // by op, then type; without those that send and receive nothing
  SentMessages numbers;
  bool operator==(const StepMessages&) const = default;

  SentMessages total() const;  // of the tensors
  std::int64_t sent(CommOp op) const;
};

StepMessages step_messages(std::span<const CommRecord> records);

}  // namespace lockstep
