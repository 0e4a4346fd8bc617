#include "comm/processes/call_record.h"

#include <cstring>

#include "comm/failure_text.h"

namespace lockstep::processes {

namespace {

CallRecord head_of(const char* record) {
  CallRecord head;
  std::memcpy(&head, record, sizeof(head));
  return head;
}

// Most calls are the same byte by byte, and all that is to be said of those is yes.
bool plainly_same(std::span<const char* const> records) {
  const CallRecord head = head_of(records[0]);
  if (static_cast<CommOp>(head.op) == CommOp::all_to_all) return false;
  const std::size_t bytes = sizeof(CallRecord) + static_cast<std::size_t>(head.counts) * sizeof(std::int64_t);
  for (const char* record : records)
    if (std::memcmp(record, records[0], bytes) != 0) return false;
  return true;
}

}  // namespace

std::int64_t record_bytes(int ranks) { return location_in_record(ranks) + kLocationBytes; }

std::int64_t location_in_record(int ranks) {
  return static_cast<std::int64_t>(sizeof(CallRecord)) + ranks * static_cast<std::int64_t>(sizeof(std::int64_t));
}

void write_record(char* to, const Message& m, std::uint64_t sequence) {
  CallRecord head{};
  head.sequence = sequence;
  head.in = m.in ? m.in.elements() : -1;
  head.out = m.out ? m.out.elements() : -1;
  head.peer = m.peer;
  head.counts = static_cast<std::int32_t>(m.counts.size());
  head.op = static_cast<std::uint8_t>(m.op);
  head.dtype = static_cast<std::uint8_t>(dtype_of_message(m));
  head.reduction = static_cast<std::uint8_t>(m.reduction);
  head.algorithm = static_cast<std::uint8_t>(m.algorithm);
  std::memcpy(to, &head, sizeof(head));
  if (!m.counts.empty()) std::memcpy(to + sizeof(head), m.counts.data(), m.counts.size() * sizeof(std::int64_t));
}

Message read_record(const char* from) {
  static char nothing;
  const CallRecord head = head_of(from);
  const auto dtype = static_cast<DType>(head.dtype);
  Message m;
  m.op = static_cast<CommOp>(head.op);
  if (head.in >= 0) m.in = ConstTensor(&nothing, dtype, Device::cpu, {head.in});
  if (head.out >= 0) m.out = Tensor(&nothing, dtype, Device::cpu, {head.out});
  m.reduction = static_cast<Reduction>(head.reduction);
  m.algorithm = static_cast<Algorithm>(head.algorithm);
  m.peer = head.peer;
  m.counts.resize(static_cast<std::size_t>(head.counts));
  if (head.counts > 0) std::memcpy(m.counts.data(), from + sizeof(head), m.counts.size() * sizeof(std::int64_t));
  return m;
}

std::string mismatch_of(std::span<const char* const> records, const std::vector<int>& names, const std::string& group) {
  if (plainly_same(records)) return "";
  const int ranks = static_cast<int>(records.size());
  const std::uint64_t sequence = head_of(records[0]).sequence;
  std::vector<Message> calls;
  for (const char* record : records) calls.push_back(read_record(record));
  for (std::size_t r = 1; r < calls.size(); ++r)
    if (!agree(calls[0], calls[r], ranks))
      return mismatch_text(sequence, group, different_calls_text({names[0], calls[0]}, {names[r], calls[r]}, ranks));
  if (calls[0].op != CommOp::all_to_all) return "";
  std::vector<const Message*> pointers;
  for (const Message& call : calls) pointers.push_back(&call);
  const std::string fault = all_to_all_fault(pointers, names);
  return fault.empty() ? "" : mismatch_text(sequence, group, fault);
}

}  // namespace lockstep::processes
