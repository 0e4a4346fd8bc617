#include "comm/processes/collective_plan.h"

#include "comm/processes/direct_plan.h"
#include "comm/processes/native_plan.h"
#include "comm/processes/reduce_plan.h"
#include "comm/processes/spread_plan.h"

namespace lockstep::processes {

std::unique_ptr<CollectivePlan> make_plan(ProcessGroup& group, const Message& message, PlanContext context) {
  if (message.algorithm == Algorithm::native && context.transport.has_native(message, group.size()))
    return std::make_unique<NativePlan>(group, message, context);
  std::unique_ptr<CollectivePlan> staged;
  if (reduces(message.op))
    staged = std::make_unique<ReducePlan>(group, message, context);
  else
    staged = std::make_unique<SpreadPlan>(group, message, context);
  if (!DirectPlan::applies(group, message, context)) return staged;
  return std::make_unique<DirectPlan>(group, message, context, std::move(staged));
}

}  // namespace lockstep::processes
