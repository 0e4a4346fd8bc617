#include "comm/mpi/direct_plan.h"

#include <algorithm>
#include <cstring>

namespace lockstep::mpi {

namespace {

static_assert(2 * sizeof(Lying) == kLyingBytes);
constexpr auto kGrace = std::chrono::milliseconds(250);

// A count that begins at nought with every meeting it is asked for: nobody need clear it.
std::uint32_t count_of_meeting(std::uint64_t word, std::uint64_t meeting) {
  return word >> 32 == (meeting & 0xffffffffu) ? static_cast<std::uint32_t>(word) : 0;
}
// One more, unless there are `most` already: then `most`. What it was before.
std::uint32_t count_one(std::atomic<std::uint64_t>& word, std::uint64_t meeting, std::uint32_t most) {
  std::uint64_t was = word.load();
  for (;;) {
    const std::uint32_t count = count_of_meeting(was, meeting);
    if (count >= most) return most;
    if (word.compare_exchange_weak(was, meeting << 32 | (count + 1))) return count;
  }
}

}  // namespace

bool DirectPlan::takes(const Group& group, const Message& message, const Tools& tools) {
  if (!tools.files || group.several_hosts()) return false;
  // Of an exchange of all with all each rank knows its own count only.
  if (message.op == CommOp::barrier || message.op == CommOp::all_to_all) return false;
  return count_of(message, group.size()) * size_of(dtype_of_message(message)) >= tools.least_seen;
}

bool DirectPlan::run(std::int64_t step, std::uint64_t met) {
  if (step == 0) {
    const auto lying = [&](const ConstTensor& t) {
      return t && t.bytes() > 0 ? tools_.files->own->find(t.raw(), t.bytes()) : Lying{};
    };
    const Lying both[2] = {lying(message_.in), lying(message_.out)};
    std::memcpy(group_.window->record(met + 1, group_.rank) + lying_in_record(ranks()), both, sizeof(both));
    return true;
  }
  return direct_ ? run_piece(met) : staged_->run(step - 1, met);
}

void DirectPlan::know(const std::vector<const char*>& records) {
  std::vector<Message> calls;
  std::vector<Lying> ins(records.size()), outs(records.size());
  const auto seen = [](const ConstTensor& t, const Lying& lying) { return !t || t.bytes() == 0 || lying.bytes > 0; };
  direct_ = true;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    calls.push_back(read_record(records[rank]));
    const char* const lying = records[rank] + lying_in_record(ranks());
    std::memcpy(&ins[rank], lying, sizeof(Lying));
    std::memcpy(&outs[rank], lying + sizeof(Lying), sizeof(Lying));
    direct_ &= seen(calls[rank].in, ins[rank]) && seen(calls[rank].out, outs[rank]);
  }
  if (!direct_) return staged_->know(records);

  tools_.files->tidy();
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    Message& call = calls[rank];
    if (static_cast<int>(rank) == group_.rank) {
      call.in = message_.in;
      call.out = message_.out;
      continue;
    }
    const auto see = [&](auto& tensor, const Lying& lying) {
      if (!tensor || tensor.bytes() == 0) return;
      std::shared_ptr<Mapping>& segment = seen_[{rank, lying.segment}];
      if (!segment) segment = tools_.files->others[static_cast<std::size_t>(group_.places[rank])]->see(lying);
      tensor = {segment->data() + lying.at, tensor.dtype(), Device::cpu, tensor.shape()};
    };
    see(call.in, ins[rank]);
    see(call.out, outs[rank]);
  }
  pieces_ = threads::Plan(calls);
}

std::int64_t DirectPlan::claim(std::uint64_t met) {
  const std::int64_t n = ranks(), all = pieces_.pieces();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t share = (group_.rank + i) % n;
    const std::int64_t begin = all * share / n, count = all * (share + 1) / n - begin;
    Seat& seat = group_.window->seat(static_cast<int>(share));
    const std::uint32_t next = count_one(seat.claimed, met, static_cast<std::uint32_t>(count));
    if (next < count) return begin + next;
  }
  return -1;
}

// One, so that who waits for the engine need not wait for the whole operation.
bool DirectPlan::run_piece(std::uint64_t met) {
  const auto all = static_cast<std::uint32_t>(pieces_.pieces());
  std::atomic<std::uint64_t>& finished = group_.window->finished();
  more_ = false;
  if (all == 0) return true;
  Seat& own = group_.window->seat(group_.seat());
  own.at_work.store(1);
  if (!group_.has_failed()) {
    if (const std::int64_t piece = claim(met); piece >= 0) {
      pieces_.run(piece);
      more_ = true;
      if (count_one(finished, met, all) + 1 == all) group_.ring_all();
    }
  }
  own.at_work.store(0);
  const bool done = count_of_meeting(finished.load(), met) == all;
  more_ &= !done;
  return done;
}

std::vector<int> DirectPlan::at_work() const {
  std::vector<int> ranks;
  for (const int rank : group_.placement.neighbours())
    if (rank != group_.rank && group_.window->seat(group_.placement.seat(rank)).at_work.load() != 0)
      ranks.push_back(rank);
  return ranks;
}

bool DirectPlan::held() const {
  if (!direct_) return staged_->held();
  if (at_work().empty()) return false;
  if (!held_since_) held_since_ = Clock::now();
  return Clock::now() - *held_since_ < kGrace;
}

}  // namespace lockstep::mpi
