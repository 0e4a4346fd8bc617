// A collective that the transport has itself: MPI's own, once the calls have been compared, since mismatched ones would
// break MPI itself.
#pragma once
#include "comm/processes/collective_plan.h"

namespace lockstep::processes {

// Whether this rank's part is where it goes, as MPI_IN_PLACE has it. (Not of a reduce_scatter: there MPI puts the part
// at the beginning of what it was cut from, not in its place.)
bool in_place(const Message& message, int rank, int ranks);

class NativePlan final : public CollectivePlan {
 public:
  using CollectivePlan::CollectivePlan;
  std::int64_t steps() const override { return group_.several_hosts() ? kPrelude + 1 : 2; }
  bool run(std::int64_t step, std::uint64_t phase) override;
  void set_records(const std::vector<const char*>& records) override;
  bool held() const override { return completion_ && !completion_->done(); }

 private:
  bool is_in_place() const { return in_place(message_, group_.rank, ranks()); }
  bool in_place_ = false;
  std::shared_ptr<Completion> completion_;
};

}  // namespace lockstep::processes
