// What one rank sends per step, by axis of the mesh, operation and type, from the record of its messages or their
// tally. Numbers are kept apart from tensors (plan/message_tally.h).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "comm/comm_log.h"
#include "plan/message_tally.h"
#include "spec/layout/mesh_axis.h"

namespace lockstep {

struct StepMessages {
  struct Row {
    CommOp op;
    DType dtype;
    SentMessages of;
    MeshAxis axis = MeshAxis::dp;
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> tensors;  // by axis, then op, then type; without those that send and receive nothing
  SentMessages numbers;
  bool operator==(const StepMessages&) const = default;

  SentMessages total() const;  // of the tensors
  SentMessages total(MeshAxis axis) const;
  bool of_several_axes() const;  // or of another one than dp
  std::int64_t sent(CommOp op) const;
};

// The records are of one step under this layout.
StepMessages step_messages(std::span<const CommRecord> records, const LayoutSpec& layout);
StepMessages step_messages(const MessageTally& tally, const LayoutSpec& layout);

}  // namespace lockstep
