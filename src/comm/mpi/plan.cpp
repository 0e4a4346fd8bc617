#include "comm/mpi/plan.h"

#include "comm/mpi/reduce_plan.h"
#include "comm/mpi/spread_plan.h"

namespace lockstep::mpi {

namespace {

// MPI's own collective, once the calls have been compared: mismatched ones would break MPI itself.
class NativePlan final : public Plan {
 public:
  using Plan::Plan;
  std::int64_t steps() const override { return group_.several_hosts() ? kPrelude + 1 : 2; }
  bool run(std::int64_t step, std::uint64_t /*met*/) override {
    if (step + 1 < steps()) return true;
    if (!ticket_) ticket_ = tools_.wire.start_native(message_, group_.members, group_.key);
    return ticket_->done();
  }
  bool held() const override { return ticket_ && !ticket_->done(); }

 private:
  std::shared_ptr<Ticket> ticket_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(Group& group, const Message& message, Tools tools) {
  if (message.algorithm == Algorithm::native && has_native(message, group.size()))
    return std::make_unique<NativePlan>(group, message, tools);
  if (reduces(message.op)) return std::make_unique<ReducePlan>(group, message, tools);
  return std::make_unique<SpreadPlan>(group, message, tools);
}

}  // namespace lockstep::mpi
