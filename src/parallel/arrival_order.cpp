#include "parallel/arrival_order.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

ArrivalOrder::ArrivalOrder(int workers, std::int64_t bound, const std::vector<Arrival>& record) : bound_(bound) {
  for (int worker = 0; worker < workers; ++worker) idle_.push_back(worker);
  for (const Arrival& arrival : record) {
    record_[arrival.update] = arrival;
    computed_on_.emplace(arrival.version, arrival.update);
  }
}

void ArrivalOrder::check(const std::vector<Arrival>& record, std::int64_t workers, const std::string& where) {
  std::map<std::int64_t, std::int64_t> idle_from;  // by worker
  std::set<std::int64_t> tickets;
  for (const Arrival& one : record) {
    const auto refuse = [&](const std::string& what, const std::string& remedy) {
      throw UserError(ExitCode::bad_input_file, fmt::format("{}: update {} {}", where, one.update, what), remedy);
    };
    if (one.worker >= workers)
      refuse(fmt::format("is of worker {}, and dp is {}", one.worker, workers),
             "use the layout.dp of the run it is of");
    if (one.version < idle_from[one.worker] || !tickets.insert(one.ticket).second)
      refuse("cannot be: its worker or its ticket was busy", "name the file of one run");
    idle_from[one.worker] = one.update + 1;
  }
}

void ArrivalOrder::start(std::int64_t updates) {
  LOCKSTEP_CHECK(begun_.empty() && again_.empty(), "{} workers are under way, and {} tickets lost", begun_.size(),
                 again_.size());
  applied_ = next_ticket_ = updates;
  dealt_.clear();
  std::ranges::sort(idle_);
}

bool ArrivalOrder::may_meet_after(std::int64_t updates) const {
  for (auto at = record_.lower_bound(updates); at != record_.end(); ++at)
    if (at->second.version < updates) return false;
  return true;
}

// Of the record, who computes on the weights of now: in the order of tickets.
std::optional<ArrivalOrder::Begun> ArrivalOrder::begin_recorded() {
  std::optional<Begun> next;
  const auto [first, last] = computed_on_.equal_range(applied_);
  for (auto at = first; at != last; ++at) {
    const Arrival& one = record_.at(at->second);
    const int worker = static_cast<int>(one.worker);
    if (is_idle(worker) && !(next && next->ticket < one.ticket)) next = Begun{worker, one.ticket, one.version};
  }
  return next;
}

std::optional<ArrivalOrder::Begun> ArrivalOrder::begin(std::int64_t end) {
  std::optional<Begun> next;
  if (record_.contains(applied_)) {
    next = begin_recorded();
    if (!next) return std::nullopt;
    std::erase(idle_, next->worker);
    dealt_.insert(next->ticket);
  } else {
    while (dealt_.erase(next_ticket_) > 0) ++next_ticket_;
    const bool lost = !again_.empty();
    if (idle_.empty() || (!lost && next_ticket_ >= end) || (bound_ >= 0 && under_way() > bound_)) return std::nullopt;
    next = Begun{idle_.front(), lost ? *again_.begin() : next_ticket_++, applied_};
    if (lost) again_.erase(again_.begin());
    idle_.erase(idle_.begin());
  }
  begun_.emplace(next->worker, *next);
  return next;
}

void ArrivalOrder::arrive(int worker) {
  LOCKSTEP_CHECK(begun_.contains(worker) && std::ranges::find(arrived_, worker) == arrived_.end(),
                 "worker {} arrives and has not begun", worker);
  arrived_.push_back(worker);
}

// Whether the others under way can all be applied in time after this one.
bool ArrivalOrder::keeps_bound(int applied_next) const {
  if (bound_ < 0) return true;
  std::vector<std::int64_t> versions;
  for (const auto& [worker, begun] : begun_)
    if (worker != applied_next) versions.push_back(begun.version);
  std::ranges::sort(versions);
  for (std::size_t i = 0; i < versions.size(); ++i)
    if (applied_ + 1 + static_cast<std::int64_t>(i) > versions[i] + bound_) return false;
  return true;
}

Arrival ArrivalOrder::take(std::size_t arrived) {
  const int worker = arrived_[arrived];
  const Begun begun = begun_.at(worker);
  arrived_.erase(arrived_.begin() + static_cast<std::ptrdiff_t>(arrived));
  begun_.erase(worker);
  idle_.push_back(worker);
  return {.update = applied_++, .worker = worker, .ticket = begun.ticket, .version = begun.version};
}

std::optional<std::size_t> ArrivalOrder::next_arrived() const {
  const auto recorded = record_.find(applied_);
  for (std::size_t i = 0; i < arrived_.size(); ++i)
    if (recorded != record_.end() ? arrived_[i] == recorded->second.worker : keeps_bound(arrived_[i])) return i;
  return std::nullopt;
}

std::optional<int> ArrivalOrder::next() const {
  const auto at = next_arrived();
  return at ? std::optional(arrived_[*at]) : std::nullopt;
}

std::optional<Arrival> ArrivalOrder::apply() {
  const auto at = next_arrived();
  return at ? std::optional(take(*at)) : std::nullopt;
}

std::optional<std::int64_t> ArrivalOrder::lose(int worker) {
  LOCKSTEP_CHECK(!record_.contains(applied_), "worker {} is lost while a record is repeated", worker);
  std::erase(idle_, worker);
  std::erase(arrived_, worker);
  const auto begun = begun_.find(worker);
  if (begun == begun_.end()) return std::nullopt;
  const std::int64_t ticket = begun->second.ticket;
  begun_.erase(begun);
  again_.insert(ticket);
  return ticket;
}

void ArrivalOrder::join(int worker) {
  LOCKSTEP_CHECK(!is_here(worker), "worker {} joins and is here", worker);
  idle_.push_back(worker);
}

bool ArrivalOrder::is_here(int worker) const {
  return begun_.contains(worker) || std::ranges::find(idle_, worker) != idle_.end();
}

}  // namespace lockstep
