#include "comm/processes/group.h"

#include "base/integers.h"

namespace lockstep::processes {

struct GroupWindow::Layout {
  std::int64_t awaited, finished, rank_states, records, slots, inbox, channels, end;
  explicit Layout(const Extent& e) {
    constexpr std::int64_t kApart = 4096;
    std::int64_t at = 0;
    const auto take = [&](std::int64_t bytes) { return std::exchange(at, round_up(at + bytes, kApart)); };
    take(sizeof(SharedFailure));
    awaited = take(e.hosts * 4);
    finished = take(8);
    rank_states = take(e.here * static_cast<std::int64_t>(sizeof(RankState)));
    records = take(2 * e.ranks * record_bytes(e.ranks));
    slots = take(2 * e.here * e.slot_bytes);
    inbox = take(e.hosts > 1 ? e.ranks * e.slot_bytes : 0);
    channels = take(e.here * e.here * static_cast<std::int64_t>(sizeof(Channel)));
    end = at;
  }
};

std::int64_t GroupWindow::bytes(const Extent& extent) { return Layout(extent).end; }

GroupWindow::GroupWindow(std::unique_ptr<Mapping> mapping, const Extent& extent)
    : mapping_(std::move(mapping)), extent_(extent) {
  const Layout layout(extent);
  awaited_ = layout.awaited;
  finished_ = layout.finished;
  rank_states_ = layout.rank_states;
  records_ = layout.records;
  slots_ = layout.slots;
  inbox_ = layout.inbox;
  channels_ = layout.channels;
}

char* GroupWindow::record(std::uint64_t phase, int rank) const {
  return at(records_ + (static_cast<std::int64_t>(phase % 2) * extent_.ranks + rank) * record_bytes(extent_.ranks));
}

char* GroupWindow::slot(std::uint64_t phase, int local_rank) const {
  return at(slots_ + (local_rank * 2 + static_cast<std::int64_t>(phase % 2)) * extent_.slot_bytes);
}

bool ProcessGroup::complete(std::uint64_t phase) const {
  for (int local_rank = 0; local_rank < static_cast<int>(processes.size()); ++local_rank)
    if (window->rank_state(local_rank).arrived.load() < phase) return false;
  return true;
}

void ProcessGroup::arrive(std::uint64_t phase) {
  window->rank_state(local_rank()).arrived.store(phase);
  if (complete(phase)) notify_all();  // of two that arrive at once, both see it
}

void ProcessGroup::notify_all() const {
  for (int other = 0; other < static_cast<int>(processes.size()); ++other)
    if (other != local_rank()) processes[static_cast<std::size_t>(other)]->wakeup.notify();
}

}  // namespace lockstep::processes
