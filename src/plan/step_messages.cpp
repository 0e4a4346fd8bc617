#include "plan/step_messages.h"

#include "spec/parameters.h"

namespace lockstep {

namespace {

bool is_number(const CommRecord& record) { return size_of(record.dtype) == 8 && record.count < kParameterAlignment; }

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

std::int64_t StepMessages::sent(CommOp op) const {
  std::int64_t elements = 0;
  for (const Row& row : tensors)
    if (row.op == op) elements += row.of.sent;
  return elements;
}

StepMessages step_messages(std::span<const CommRecord> records) {
  StepMessages messages;
  std::map<std::pair<CommOp, DType>, SentMessages> tensors;
  for (const CommRecord& record : records) {
    const Traffic& t = record.traffic;
    if (t.sent == 0 && t.received == 0) continue;
    (is_number(record) ? messages.numbers : tensors[{record.op, record.dtype}]) +=
        {1, t.sent, t.received, t.sent * size_of(record.dtype)};
  }
  for (const auto& [key, sent] : tensors) messages.tensors.push_back({key.first, key.second, sent});
  return messages;
}

}  // namespace lockstep
