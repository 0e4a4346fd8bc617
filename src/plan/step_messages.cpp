#include "plan/step_messages.h"

#include <tuple>

#include "spec/parameters.h"

namespace lockstep {

namespace {

bool is_number(const CommRecord& record) { return size_of(record.dtype) == 8 && record.count < kParameterAlignment; }

// By the group's name (parallel/mesh_groups.h, context_parallel.h, partial_gradients.h); an axis that has all ranks is
// the world, but for cp.
MeshAxis axis_of(const CommRecord& record, const LayoutSpec& layout) {
  if (record.group == "cp" || record.group == "cp ring" || record.group == "cp heads") return MeshAxis::cp;
  if (record.group == "tp" || record.group == "copies of heads" || layout.tp == layout.ranks()) return MeshAxis::tp;
  return record.group == "pp" || layout.pp == layout.ranks() ? MeshAxis::pp : MeshAxis::dp;
}

}  // namespace

SentMessages& SentMessages::operator+=(const SentMessages& other) {
  calls += other.calls;
  sent += other.sent;
  received += other.received;
  bytes_sent += other.bytes_sent;
  return *this;
}

SentMessages StepMessages::total() const {
  SentMessages all;
  for (const Row& row : tensors) all += row.of;
  return all;
}

SentMessages StepMessages::total(MeshAxis axis) const {
  SentMessages all;
  for (const Row& row : tensors)
    if (row.axis == axis) all += row.of;
  return all;
}

bool StepMessages::of_several_axes() const { return total().calls > total(MeshAxis::dp).calls; }

std::int64_t StepMessages::sent(CommOp op) const {
  std::int64_t elements = 0;
  for (const Row& row : tensors)
    if (row.op == op) elements += row.of.sent;
  return elements;
}

StepMessages step_messages(std::span<const CommRecord> records, const LayoutSpec& layout) {
  StepMessages messages;
  std::map<std::tuple<MeshAxis, CommOp, DType>, SentMessages> tensors;
  for (const CommRecord& record : records) {
    const Traffic& t = record.traffic;
    if (t.sent == 0 && t.received == 0) continue;
    (is_number(record) ? messages.numbers : tensors[{axis_of(record, layout), record.op, record.dtype}]) +=
        {1, t.sent, t.received, t.sent * size_of(record.dtype)};
  }
  for (const auto& [key, sent] : tensors)
    messages.tensors.push_back(
        {.op = std::get<CommOp>(key), .dtype = std::get<DType>(key), .of = sent, .axis = std::get<MeshAxis>(key)});
  return messages;
}

}  // namespace lockstep
