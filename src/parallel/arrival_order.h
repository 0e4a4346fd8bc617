// The order of an asynchronous run, as the first parameter server decides it: who computes on which ticket, on which
// version of the weights, and whose gradient is applied next. Plain data, no messages: train/async_steps.h carries it
// out.
//
//   begin    a worker that is idle gets the next ticket, and computes on the weights of now: its version
//   arrive   its gradient is there
//   apply    as update number `applied()`; its staleness is that number less its version. The worker is idle again
//
// Gradients are applied in the order in which they arrive, and tickets go first to who has been idle longest. A bound s
// on staleness is held by two rules: a worker begins only while at most s others are under way, and a gradient is not
// applied before one that would then be too late. With both, the one whose time is up first can always be next.
//
// A worker may be lost, with the ticket that it computes on, which is then dealt before any new one; and may join
// later: of a run with a record that is not repeated any more, or never was.
//
// With a record (telemetry/arrivals.h) tickets, versions and updates are the record's, to its end; from there on they
// are as they come, and tickets that the record has passed over are dealt first.
//
// One thread uses it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "telemetry/arrivals.h"

namespace lockstep {

class ArrivalOrder {
 public:
  // `bound`: none where it is negative.
  ArrivalOrder(int workers, std::int64_t bound, const std::vector<Arrival>& record = {});

  // All workers are idle, and as many updates have been made on as many tickets.
  void start(std::int64_t updates);

  std::int64_t applied() const { return applied_; }
  std::int64_t under_way() const { return static_cast<std::int64_t>(begun_.size()); }
  bool is_idle(int worker) const { return !begun_.contains(worker); }
  std::int64_t next_ticket() const { return next_ticket_; }

  struct Begun {
    int worker;
    std::int64_t ticket, version;
  };
  // The next worker to begin, if one may, with a ticket before `end`.
  std::optional<Begun> begin(std::int64_t end);
  void arrive(int worker);
  // The worker whose gradient is applied next, if it is there; and then it is applied, whatever became of it.
  std::optional<int> next() const;
  std::optional<Arrival> apply();

  // The ticket that the worker was at, if it was at one, which is dealt again.
  std::optional<std::int64_t> lose(int worker);
  void join(int worker);
  bool is_here(int worker) const;

  // Whether nothing of the record is under way after so many updates.
  bool may_meet_after(std::int64_t updates) const;
  // Whether a record can be of so many workers: UserError naming the update that cannot.
  static void check(const std::vector<Arrival>& record, std::int64_t workers, const std::string& where);

 private:
  std::optional<Begun> begin_recorded();
  bool keeps_bound(int applied_next) const;
  std::optional<std::size_t> next_arrived() const;
  Arrival take(std::size_t arrived);

  const std::int64_t bound_;
  std::map<std::int64_t, Arrival> record_;                 // by update
  std::multimap<std::int64_t, std::int64_t> computed_on_;  // updates of the record, by version
  std::int64_t applied_ = 0, next_ticket_ = 0;
  std::set<std::int64_t> dealt_;  // of the record, from next_ticket_ on
  std::set<std::int64_t> again_;  // that were lost with their workers
  std::vector<int> idle_;         // longest first
  std::vector<int> arrived_;      // in this order
  std::map<int, Begun> begun_;    // by worker
};

}  // namespace lockstep
