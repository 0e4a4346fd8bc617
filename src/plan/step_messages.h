// What one rank sends per step, by axis of the mesh, operation and type, from the record of its messages or their
// tally. Numbers are kept apart from tensors (plan/message_tally.h).
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include "comm/comm_log.h"
#include "plan/message_tally.h"
#include "spec/layout/layout_spec.h"

namespace lockstep {

// Whom a message is between: ranks that have the same weights (dp, and cp with it), other layers, other parts of every
// sample, or other parts of every layer.
enum class MeshAxis { dp, pp, cp, tp };
inline constexpr std::array kMeshAxes{MeshAxis::dp, MeshAxis::pp, MeshAxis::cp, MeshAxis::tp};
constexpr std::string_view name_of(MeshAxis axis) {
  constexpr std::string_view kNames[] = {"dp", "pp", "cp", "tp"};
  return kNames[static_cast<int>(axis)];
}

// By the group's name (parallel/mesh_groups.h, context_parallel.h, partial_gradients.h); an axis that has all ranks is
// the world, but for cp.
MeshAxis axis_of(const std::string& group, const LayoutSpec& layout);

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
