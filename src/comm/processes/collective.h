// A collective under way: its plan, and where this rank is in it.
#pragma once
#include "comm/processes/collective_plan.h"
#include "comm/processes/operation.h"

namespace lockstep::processes {

class Collective final : public Operation {
 public:
  Collective(ProcessGroup& group, Message message, std::uint64_t sequence, PlanContext context);
  bool advance() override;
  std::vector<int> missing() const override;
  bool more() const override { return plan_->more(); }
  bool held() const override { return plan_->held(); }

 private:
  bool run_step();
  bool swap_records();
  void compare();

  std::unique_ptr<CollectivePlan> plan_;
  Exchange records_;
  bool begun_ = false;
  bool compared_ = false;
  std::uint64_t base_ = 0;  // the phase before its first step
  std::int64_t step_ = 0;
};

// A call of several tensors: one operation, whose pairs go one after the other.
class CollectiveOfSeveral final : public Operation {
 public:
  CollectiveOfSeveral(ProcessGroup& group, const Message& message, std::uint64_t sequence, PlanContext context);
  bool advance() override;
  std::vector<int> missing() const override { return now_->missing(); }
  bool more() const override { return now_->more(); }
  bool held() const override { return now_->held(); }

 private:
  void begin_next();

  std::vector<Message> pairs_;
  PlanContext context_;
  std::size_t begun_ = 0;
  std::unique_ptr<Collective> now_;
};

}  // namespace lockstep::processes
