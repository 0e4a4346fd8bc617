#include "comm/mpi/collective_plan.h"

#include "comm/mpi/direct_plan.h"
#include "comm/mpi/reduce_plan.h"
#include "comm/mpi/spread_plan.h"

namespace lockstep::mpi {

namespace {

// MPI's own collective, once the calls have been compared: mismatched ones would break MPI itself.
class NativePlan final : public CollectivePlan {
 public:
  using CollectivePlan::CollectivePlan;
  std::int64_t steps() const override { return group_.several_hosts() ? kPrelude + 1 : 2; }
  bool run(std::int64_t step, std::uint64_t phase) override {
    if (step == 0) group_.window->record(phase + 1, group_.rank)[location_in_record(ranks())] = is_in_place();
    if (step + 1 < steps()) return true;
    if (!completion_) completion_ = context_.transport.start_native(message_, in_place_, group_.members, group_.key);
    return completion_->done();
  }
  void set_records(const std::vector<const char*>& records) override {
    in_place_ = is_in_place();
    if (!has_root(message_.op))
      for (const char* record : records) in_place_ &= record[location_in_record(ranks())] != 0;
  }
  bool held() const override { return completion_ && !completion_->done(); }

 private:
  bool is_in_place() const { return in_place(message_, group_.rank, ranks()); }
  bool in_place_ = false;
  std::shared_ptr<Completion> completion_;
};

}  // namespace

std::unique_ptr<CollectivePlan> make_plan(ProcessGroup& group, const Message& message, PlanContext context) {
  if (message.algorithm == Algorithm::native && has_native(message, group.size()))
    return std::make_unique<NativePlan>(group, message, context);
  std::unique_ptr<CollectivePlan> staged;
  if (reduces(message.op))
    staged = std::make_unique<ReducePlan>(group, message, context);
  else
    staged = std::make_unique<SpreadPlan>(group, message, context);
  if (!DirectPlan::applies(group, message, context)) return staged;
  return std::make_unique<DirectPlan>(group, message, context, std::move(staged));
}

}  // namespace lockstep::mpi
