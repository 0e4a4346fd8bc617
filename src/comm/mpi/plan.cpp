#include "comm/mpi/plan.h"

#include "comm/mpi/direct_plan.h"
#include "comm/mpi/reduce_plan.h"
#include "comm/mpi/spread_plan.h"

namespace lockstep::mpi {

namespace {

// MPI's own collective, once the calls have been compared: mismatched ones would break MPI itself.
class NativePlan final : public Plan {
 public:
  using Plan::Plan;
  std::int64_t steps() const override { return group_.several_hosts() ? kPrelude + 1 : 2; }
  bool run(std::int64_t step, std::uint64_t met) override {
    if (step == 0) group_.window->record(met + 1, group_.rank)[lying_in_record(ranks())] = is_in_place();
    if (step + 1 < steps()) return true;
    if (!ticket_) ticket_ = tools_.wire.start_native(message_, in_place_, group_.members, group_.key);
    return ticket_->done();
  }
  void know(const std::vector<const char*>& records) override {
    in_place_ = is_in_place();
    if (!has_root(message_.op))
      for (const char* record : records) in_place_ &= record[lying_in_record(ranks())] != 0;
  }
  bool held() const override { return ticket_ && !ticket_->done(); }

 private:
  bool is_in_place() const { return in_place(message_, group_.rank, ranks()); }
  bool in_place_ = false;
  std::shared_ptr<Ticket> ticket_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(Group& group, const Message& message, Tools tools) {
  if (message.algorithm == Algorithm::native && has_native(message, group.size()))
    return std::make_unique<NativePlan>(group, message, tools);
  std::unique_ptr<Plan> staged;
  if (reduces(message.op))
    staged = std::make_unique<ReducePlan>(group, message, tools);
  else
    staged = std::make_unique<SpreadPlan>(group, message, tools);
  if (!DirectPlan::takes(group, message, tools)) return staged;
  return std::make_unique<DirectPlan>(group, message, tools, std::move(staged));
}

}  // namespace lockstep::mpi
