#include "comm/mpi/collective.h"

namespace lockstep::mpi {

void Exchange::add(Transfer::Way way, int host, void* data, std::int64_t bytes) {
  if (bytes == 0) return;
  const int peer = group_.members[static_cast<std::size_t>(group_.placement.leader(host))];
  transfers_.push_back({way, data, bytes, peer, group_.tag(Group::Kind::collective)});
}

void Exchange::send(int host, const void* data, std::int64_t bytes) {
  add(Transfer::Way::send, host, const_cast<void*>(data), bytes);
}

void Exchange::receive(int host, void* data, std::int64_t bytes) { add(Transfer::Way::receive, host, data, bytes); }

bool Exchange::done() {
  if (!ticket_) ticket_ = wire_.post(std::exchange(transfers_, {}), group_.window);
  if (!ticket_->done()) return false;
  ticket_.reset();
  return true;
}

Collective::Collective(Group& group, Message message, std::uint64_t sequence, Tools tools)
    : Operation(group, std::move(message), sequence),
      plan_(make_plan(group, this->message(), tools)),
      records_(group, tools.wire) {}

bool Collective::advance() {
  Group& g = group();
  if (!begun_) {
    base_ = g.meeting;
    begun_ = true;
  }
  for (;;) {
    if (!g.met(base_ + static_cast<std::uint64_t>(step_))) return false;
    if (!run_step()) return false;
    ++step_;
    // With several hosts all of this host's ranks are out of it before the next begins.
    const bool last = compared_ && step_ == plan_->steps();
    if (!last || g.several_hosts()) g.come(base_ + static_cast<std::uint64_t>(step_));
    if (!last) continue;
    g.meeting = base_ + static_cast<std::uint64_t>(g.several_hosts() ? step_ : step_ - 1);
    return true;
  }
}

bool Collective::run_step() {
  Group& g = group();
  if (step_ == 0) write_record(g.window->record(base_ + 1, g.rank), message(), sequence());
  if (g.several_hosts() && step_ == 1) return swap_records();
  if (!compared_ && step_ == (g.several_hosts() ? Plan::kPrelude : 1)) compare();
  return plan_->run(step_, base_ + static_cast<std::uint64_t>(step_));
}

bool Collective::swap_records() {
  Group& g = group();
  const Placement& placement = g.placement;
  if (!placement.leads()) return true;
  if (!records_.under_way())
    for (int host = 0; host < placement.hosts(); ++host) {
      if (host == placement.mine()) continue;
      for (const int rank : placement.neighbours())
        records_.send(host, g.window->record(base_ + 1, rank), record_bytes(g.size()));
      for (const int rank : placement.on(host))
        records_.receive(host, g.window->record(base_ + 1, rank), record_bytes(g.size()));
    }
  if (!records_.done()) return false;
  for (int host = 0; host < placement.hosts(); ++host) g.window->heard(host).store(sequence());
  return true;
}

void Collective::compare() {
  Group& g = group();
  std::vector<const char*> records;
  for (int rank = 0; rank < g.size(); ++rank) records.push_back(g.window->record(base_ + 1, rank));
  const std::string wrong = mismatch_of(records, g.members, g.name);
  if (!wrong.empty()) throw CommError(wrong);
  plan_->know(records);
  compared_ = true;
}

std::vector<int> Collective::missing() const {
  const Group& g = group();
  const Placement& placement = g.placement;
  // Of this host first: until all of it is there, its leader has asked no other host.
  std::vector<int> absent, elsewhere, behind;
  const std::uint64_t base = begun_ ? base_ : g.meeting;
  for (int rank = 0; rank < g.size(); ++rank) {
    if (rank == g.rank) continue;
    if (!placement.here(rank)) {
      if (g.window->heard(placement.host_of(rank)).load() < sequence()) elsewhere.push_back(rank);
      continue;
    }
    const std::uint64_t came = g.window->seat(placement.seat(rank)).came.load();
    if (came <= base) absent.push_back(rank);
    if (came < base + static_cast<std::uint64_t>(step_)) behind.push_back(rank);
  }
  if (!absent.empty()) return absent;
  return elsewhere.empty() ? behind : elsewhere;
}

}  // namespace lockstep::mpi
