#include "comm/nccl/in_flight.h"

#include <algorithm>

namespace lockstep::nccl {

void InFlightOperations::advance() {
  while (!queue_.empty()) {
    if (link_ && !link_->settled()) return;
    Operation& op = *queue_.front();
    if (!op.entered) {
      stream().wait(*op.ready);
      stream().record(*op.begun);
      op.entered = true;
    }
    if (op.next < op.steps.size()) {
      if (!op.steps[op.next]()) return;
      ++op.next;
      continue;
    }
    stream().record(*op.ended);
    op.issued = true;
    op.steps.clear();
    op.overdue.reset();  // counted anew: what held it up until now has come
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

bool InFlightOperations::idle() {
  while (!running_.empty() && running_.front()->ended->done()) running_.pop_front();
  return queue_.empty() && running_.empty();
}

std::shared_ptr<Operation> InFlightOperations::late() {
  if (idle()) return nullptr;
  // They go one after the other: whoever needs any of them needs the first.
  const std::shared_ptr<Operation> first = running_.empty() ? queue_.front() : running_.front();
  Operation& op = *first;
  const auto is_wanted = [](const std::shared_ptr<Operation>& o) {
    return o->asked || (o->needed && o->needed->done());
  };
  const bool wanted =
      std::any_of(running_.begin(), running_.end(), is_wanted) || std::any_of(queue_.begin(), queue_.end(), is_wanted);
  const bool may_run = op.issued ? op.begun->done() : op.ready->done();
  if (!wanted || !may_run) return nullptr;
  if (!op.overdue) op.overdue = Clock::now();
  return waiting::seconds_since(*op.overdue) > op.deadline ? first : nullptr;
}

void InFlightOperations::abort() noexcept {
  if (link_) link_->abort();
}

}  // namespace lockstep::nccl
