#include "comm/processes/native_plan.h"

#include "comm/parts.h"

namespace lockstep::processes {

bool in_place(const Message& m, int rank, int ranks) {
  if (!m.in || !m.out) return false;
  const char *in = static_cast<const char*>(m.in.raw()), *out = static_cast<const char*>(m.out.raw());
  const auto at = [&] { return Parts(count_of(m, ranks), ranks, m.counts).begin(rank) * size_of(dtype_of_message(m)); };
  switch (m.op) {
    case CommOp::all_reduce:
    case CommOp::reduce:
      return in == out;
    case CommOp::all_gather:
    case CommOp::gather:
      return in == out + at();
    case CommOp::scatter:
      return out == in + at();
    default:
      return false;
  }
}

bool NativePlan::run(std::int64_t step, std::uint64_t phase) {
  if (step == 0) group_.window->record(phase + 1, group_.rank)[location_in_record(ranks())] = is_in_place();
  if (step + 1 < steps()) return true;
  if (!completion_) completion_ = context_.transport.start_native(message_, in_place_, group_.members, group_.key);
  return completion_->done();
}

void NativePlan::set_records(const std::vector<const char*>& records) {
  in_place_ = is_in_place();
  if (!has_root(message_.op))
    for (const char* record : records) in_place_ &= record[location_in_record(ranks())] != 0;
}

}  // namespace lockstep::processes
