// A collective whose tensors are all in memory that the host's processes share (shared_file.h): no byte is staged.
//
// With its call each rank says where its tensors are. If all ranks can map them, the work is the plan of thread ranks
// (threads/buffer_plan.h), made by every rank for itself, the same pieces in the same order; an algorithm is an order
// of sums and nothing else. A rank runs the pieces of its own share, then what is left of the others', so that a rank
// that computes delays nobody. It is done when all pieces are finished: one barrier, and no second one. If some tensor
// is elsewhere, all ranks know so and go through the slots, one step later.
//
// Other ranks write into this rank's tensors. So no rank begins a piece after the group has failed: a rank says that it
// is at work before it checks whether the group has failed, and a failed operation is held until no rank is at work;
// for a process that was stopped while at work, no longer than kGrace.
#pragma once
#include "comm/processes/collective_plan.h"
#include "comm/threads/buffer_plan.h"

namespace lockstep::processes {

class DirectPlan final : public CollectivePlan {
 public:
  // Whether a call may go this way. All ranks of a group say the same of the same call.
  static bool applies(const ProcessGroup& group, const Message& message, const PlanContext& context);
  // `staged` is the way through the slots.
  DirectPlan(ProcessGroup& group, const Message& message, PlanContext context, std::unique_ptr<CollectivePlan> staged)
      : CollectivePlan(group, message, context), staged_(std::move(staged)) {}

  std::int64_t steps() const override { return direct_ ? 2 : staged_->steps() + 1; }
  bool run(std::int64_t step, std::uint64_t phase) override;
  void set_records(const std::vector<const char*>& records) override;
  bool more() const override { return more_; }
  bool held() const override;
  std::vector<int> at_work() const override;

 private:
  bool run_piece(std::uint64_t phase);
  std::int64_t claim(std::uint64_t phase);

  std::unique_ptr<CollectivePlan> staged_;
  bool direct_ = false, more_ = false;
  threads::BufferPlan pieces_;
  // By rank and segment, each once: tensors that are one to their owner are to be one here, or pieces would differ.
  std::map<std::pair<std::size_t, std::int64_t>, std::shared_ptr<Mapping>> seen_;
  mutable std::optional<Clock::time_point> held_since_;
};

}  // namespace lockstep::processes
