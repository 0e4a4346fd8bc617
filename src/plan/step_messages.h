// What one rank sends in a step, by axis of the mesh, operation and type, from the record of its messages.
//
// Numbers go apart from tensors: counts, losses, the norm's bins and the step's controls are of 8 bytes each and fewer
// than any stored parameter has elements, so a log needs no name for them.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "comm/comm_log.h"
#include "spec/layout_spec.h"

namespace lockstep {

// Whom a message is between: ranks that have other parts of the batch, other layers, or other parts of every layer.
enum class MeshAxis { dp, pp, tp };
inline constexpr std::array kMeshAxes{MeshAxis::dp, MeshAxis::pp, MeshAxis::tp};
constexpr std::string_view name_of(MeshAxis axis) {
  return axis == MeshAxis::dp ? "dp" : axis == MeshAxis::pp ? "pp" : "tp";
}

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

}  // namespace lockstep
