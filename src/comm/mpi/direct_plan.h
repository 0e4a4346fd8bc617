// A collective whose tensors all lie in memory that the host's processes share (shared_file.h): no byte is staged.
//
// With its call each rank says where its tensors lie. If all of them can be seen, what is to be done is the plan of
// thread ranks (threads/plan.h), made by every rank for itself, the same pieces in the same order; an algorithm is an
// order of sums and nothing else. A rank takes the pieces of its own share of them, then what is left of the others',
// so that who computes holds nobody up. It is over when all pieces are finished: one meeting, and no second one. If
// some tensor lies elsewhere all ranks know so, and go through the slots as ever, a step later.
//
// Others write into this rank's tensors. So nobody begins a piece after the group has failed: who has one in hand says
// so before it looks whether it has, and a failed operation is held until no one has; of one that is stopped with a
// piece in hand, no longer than kGrace.
#pragma once
#include "comm/mpi/plan.h"
#include "comm/threads/plan.h"

namespace lockstep::mpi {

class DirectPlan final : public Plan {
 public:
  // Whether a call is one that may go this way. All ranks of a group say the same of the same call.
  static bool takes(const Group& group, const Message& message, const Tools& tools);
  // `staged` is the way through the slots.
  DirectPlan(Group& group, const Message& message, Tools tools, std::unique_ptr<Plan> staged)
      : Plan(group, message, tools), staged_(std::move(staged)) {}

  std::int64_t steps() const override { return direct_ ? 2 : staged_->steps() + 1; }
  bool run(std::int64_t step, std::uint64_t met) override;
  void know(const std::vector<const char*>& records) override;
  bool more() const override { return more_; }
  bool held() const override;
  std::vector<int> at_work() const override;

 private:
  bool run_piece(std::uint64_t met);
  std::int64_t claim(std::uint64_t met);

  std::unique_ptr<Plan> staged_;
  bool direct_ = false, more_ = false;
  threads::Plan pieces_;
  // By rank and segment, each once: tensors that are one to their owner are to be one here, or pieces would differ.
  std::map<std::pair<std::size_t, std::int64_t>, std::shared_ptr<Mapping>> seen_;
  mutable std::optional<Clock::time_point> held_since_;
};

}  // namespace lockstep::mpi
