#include "comm/processes/collective.h"

namespace lockstep::processes {

void Exchange::add(Transfer::Way way, int host, void* data, std::int64_t bytes) {
  if (bytes == 0) return;
  const int peer = group_.members[static_cast<std::size_t>(group_.placement.leader(host))];
  by_host_.resize(static_cast<std::size_t>(group_.placement.hosts()));
  by_host_[static_cast<std::size_t>(host)].transfers.push_back(
      {way, data, bytes, peer, group_.tag(ProcessGroup::Kind::collective)});
}

void Exchange::send(int host, const void* data, std::int64_t bytes) {
  add(Transfer::Way::send, host, const_cast<void*>(data), bytes);
}

void Exchange::receive(int host, void* data, std::int64_t bytes) { add(Transfer::Way::receive, host, data, bytes); }

bool Exchange::done() {
  bool all = true;
  for (std::size_t host = 0; host < by_host_.size(); ++host) {
    auto& [transfers, completion] = by_host_[host];
    std::atomic<std::uint32_t>& awaited = group_.window->awaited(static_cast<int>(host));
    if (!under_way_ && !transfers.empty()) {
      awaited.store(1);
      completion = transport_.post(std::exchange(transfers, {}), group_.window);
    }
    if (completion && completion->done()) {
      awaited.store(0);
      completion.reset();
    }
    all &= !completion;
  }
  under_way_ = !all;
  return all;
}

Collective::Collective(ProcessGroup& group, Message message, std::uint64_t sequence, PlanContext context)
    : Operation(group, std::move(message), sequence),
      plan_(make_plan(group, this->message(), context)),
      records_(group, context.transport) {}

bool Collective::advance() {
  ProcessGroup& g = group();
  if (!begun_) {
    base_ = g.phase;
    begun_ = true;
  }
  for (;;) {
    if (!g.complete(base_ + static_cast<std::uint64_t>(step_))) return false;
    if (!run_step()) return false;
    ++step_;
    // With several hosts all of this host's ranks are out of it before the next begins.
    const bool last = compared_ && step_ == plan_->steps();
    if (!last || g.several_hosts()) g.arrive(base_ + static_cast<std::uint64_t>(step_));
    if (!last) continue;
    g.phase = base_ + static_cast<std::uint64_t>(g.several_hosts() ? step_ : step_ - 1);
    return true;
  }
}

bool Collective::run_step() {
  ProcessGroup& g = group();
  if (step_ == 0) write_record(g.window->record(base_ + 1, g.rank), message(), sequence());
  if (g.several_hosts() && step_ == 1) return swap_records();
  if (!compared_ && step_ == (g.several_hosts() ? CollectivePlan::kPrelude : 1)) compare();
  return plan_->run(step_, base_ + static_cast<std::uint64_t>(step_));
}

bool Collective::swap_records() {
  ProcessGroup& g = group();
  const Placement& placement = g.placement;
  if (!placement.leads()) return true;
  if (!records_.under_way())
    for (int host = 0; host < placement.hosts(); ++host) {
      if (host == placement.mine()) continue;
      for (const int rank : placement.local_ranks())
        records_.send(host, g.window->record(base_ + 1, rank), record_bytes(g.size()));
      for (const int rank : placement.on(host))
        records_.receive(host, g.window->record(base_ + 1, rank), record_bytes(g.size()));
    }
  return records_.done();
}

void Collective::compare() {
  ProcessGroup& g = group();
  std::vector<const char*> records;
  for (int rank = 0; rank < g.size(); ++rank) records.push_back(g.window->record(base_ + 1, rank));
  const std::string wrong = mismatch_of(records, g.members, g.name);
  if (!wrong.empty()) throw CommError(wrong);
  plan_->set_records(records);
  compared_ = true;
}

std::vector<int> Collective::missing() const {
  const ProcessGroup& g = group();
  const Placement& placement = g.placement;
  // Of this host first: until all of it is there, its leader has asked no other host.
  std::vector<int> absent, behind, elsewhere;
  const std::uint64_t base = begun_ ? base_ : g.phase;
  for (const int rank : placement.local_ranks()) {
    if (rank == g.rank) continue;
    const std::uint64_t arrived = g.window->rank_state(placement.local_rank(rank)).arrived.load();
    if (arrived <= base) absent.push_back(rank);
    if (arrived < base + static_cast<std::uint64_t>(step_)) behind.push_back(rank);
  }
  if (!absent.empty()) return absent;
  // Who waits for the leader alone waits for the hosts that the leader waits for; but one that sleeps waits for nobody.
  const int leader = placement.leader(placement.mine());
  const bool leader_waits =
      behind.empty() || (behind == std::vector<int>{leader} &&
                         g.processes[static_cast<std::size_t>(placement.local_rank(leader))]->awake());
  if (!leader_waits) return behind;
  for (int rank = 0; rank < g.size(); ++rank)
    if (!placement.here(rank) && g.window->awaited(placement.host_of(rank)).load()) elsewhere.push_back(rank);
  if (elsewhere.empty() && behind.empty()) return plan_->at_work();
  return elsewhere.empty() ? behind : elsewhere;
}

CollectiveOfSeveral::CollectiveOfSeveral(ProcessGroup& group, const Message& message, std::uint64_t sequence,
                                         PlanContext context)
    : Operation(group, message, sequence), pairs_(pairs_of(message)), context_(context) {
  begin_next();
}

void CollectiveOfSeveral::begin_next() {
  now_ = std::make_unique<Collective>(group(), pairs_[begun_++], sequence(), context_);
}

bool CollectiveOfSeveral::advance() {
  while (now_->advance()) {
    if (begun_ == pairs_.size()) return true;
    begin_next();
  }
  return false;
}

}  // namespace lockstep::processes
