#include "comm/mpi/group.h"

#include "base/integers.h"

namespace lockstep::mpi {

struct GroupWindow::Layout {
  std::int64_t awaited, finished, seats, records, slots, inbox, channels, end;
  explicit Layout(const Extent& e) {
    constexpr std::int64_t kApart = 4096;
    std::int64_t at = 0;
    const auto take = [&](std::int64_t bytes) { return std::exchange(at, round_up(at + bytes, kApart)); };
    take(sizeof(FailureBox));
    awaited = take(e.hosts * 4);
    finished = take(8);
    seats = take(e.here * static_cast<std::int64_t>(sizeof(Seat)));
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
  seats_ = layout.seats;
  records_ = layout.records;
  slots_ = layout.slots;
  inbox_ = layout.inbox;
  channels_ = layout.channels;
}

char* GroupWindow::record(std::uint64_t meeting, int rank) const {
  return at(records_ + (static_cast<std::int64_t>(meeting % 2) * extent_.ranks + rank) * record_bytes(extent_.ranks));
}

char* GroupWindow::slot(std::uint64_t meeting, int seat) const {
  return at(slots_ + (seat * 2 + static_cast<std::int64_t>(meeting % 2)) * extent_.slot_bytes);
}

bool Group::met(std::uint64_t meeting) const {
  for (int seat = 0; seat < static_cast<int>(citizens.size()); ++seat)
    if (window->seat(seat).came.load() < meeting) return false;
  return true;
}

void Group::come(std::uint64_t meeting) {
  window->seat(seat()).came.store(meeting);
  if (met(meeting)) ring_all();  // of two who come at once, both see it
}

void Group::ring_all() const {
  for (int other = 0; other < static_cast<int>(citizens.size()); ++other)
    if (other != seat()) citizens[static_cast<std::size_t>(other)]->bell.ring();
}

}  // namespace lockstep::mpi
