#include "plan/step_messages.h"

#include <map>
#include <tuple>

namespace lockstep {

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
  MessageTally tally;
  for (const CommRecord& record : records)
    if (const Traffic& t = record.traffic; t.sent > 0 || t.received > 0)
      tally.group(record.group)[{record.op, record.dtype, is_number(record.dtype, record.count)}] +=
          {1, t.sent, t.received, t.sent * size_of(record.dtype)};
  return step_messages(tally, layout);
}

StepMessages step_messages(const MessageTally& tally, const LayoutSpec& layout) {
  StepMessages messages;
  std::map<std::tuple<MeshAxis, CommOp, DType>, SentMessages> tensors;
  for (const auto& [group, kinds] : tally.groups())
    for (const auto& [kind, sent] : kinds)
      (kind.number ? messages.numbers : tensors[{axis_of(group, layout), kind.op, kind.dtype}]) += sent;
  for (const auto& [key, sent] : tensors)
    messages.tensors.push_back(
        {.op = std::get<CommOp>(key), .dtype = std::get<DType>(key), .of = sent, .axis = std::get<MeshAxis>(key)});
  return messages;
}

}  // namespace lockstep
