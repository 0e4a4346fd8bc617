#include "comm/processes/direct_plan.h"

#include <algorithm>
#include <cstring>

namespace lockstep::processes {

namespace {

static_assert(2 * sizeof(TensorLocation) == kLocationBytes);
constexpr auto kGrace = std::chrono::milliseconds(250);

// A count that begins at zero with every phase: nobody need clear it.
std::uint32_t count_of_phase(std::uint64_t word, std::uint64_t phase) {
  return word >> 32 == (phase & 0xffffffffu) ? static_cast<std::uint32_t>(word) : 0;
}
// One more, unless there are `most` already: then `most`. What it was before.
std::uint32_t count_one(std::atomic<std::uint64_t>& word, std::uint64_t phase, std::uint32_t most) {
  std::uint64_t was = word.load();
  for (;;) {
    const std::uint32_t count = count_of_phase(was, phase);
    if (count >= most) return most;
    if (word.compare_exchange_weak(was, phase << 32 | (count + 1))) return count;
  }
}

}  // namespace

bool DirectPlan::applies(const ProcessGroup& group, const Message& message, const PlanContext& context) {
  if (!context.files || group.several_hosts()) return false;
  // Of an exchange of all with all each rank knows its own count only.
  if (message.op == CommOp::barrier || message.op == CommOp::all_to_all) return false;
  return count_of(message, group.size()) * size_of(dtype_of_message(message)) >= context.least_seen;
}

bool DirectPlan::run(std::int64_t step, std::uint64_t phase) {
  if (step == 0) {
    const auto location = [&](const ConstTensor& t) {
      return t && t.bytes() > 0 ? context_.files->own->find(t.raw(), t.bytes()) : TensorLocation{};
    };
    const TensorLocation both[2] = {location(message_.in), location(message_.out)};
    std::memcpy(group_.window->record(phase + 1, group_.rank) + location_in_record(ranks()), both, sizeof(both));
    return true;
  }
  return direct_ ? run_piece(phase) : staged_->run(step - 1, phase);
}

void DirectPlan::set_records(const std::vector<const char*>& records) {
  std::vector<Message> calls;
  std::vector<TensorLocation> ins(records.size()), outs(records.size());
  const auto seen = [](const ConstTensor& t, const TensorLocation& location) {
    return !t || t.bytes() == 0 || location.bytes > 0;
  };
  direct_ = true;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    calls.push_back(read_record(records[rank]));
    const char* const location = records[rank] + location_in_record(ranks());
    std::memcpy(&ins[rank], location, sizeof(TensorLocation));
    std::memcpy(&outs[rank], location + sizeof(TensorLocation), sizeof(TensorLocation));
    direct_ &= seen(calls[rank].in, ins[rank]) && seen(calls[rank].out, outs[rank]);
  }
  if (!direct_) return staged_->set_records(records);

  context_.files->tidy();
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    Message& call = calls[rank];
    if (static_cast<int>(rank) == group_.rank) {
      call.in = message_.in;
      call.out = message_.out;
      continue;
    }
    const auto see = [&](auto& tensor, const TensorLocation& location) {
      if (!tensor || tensor.bytes() == 0) return;
      std::shared_ptr<Mapping>& segment = seen_[{rank, location.segment}];
      if (!segment)
        segment = context_.files->others[static_cast<std::size_t>(group_.process_slots[rank])]->map(location);
      tensor = {segment->data() + location.at, tensor.dtype(), Device::cpu, tensor.shape()};
    };
    see(call.in, ins[rank]);
    see(call.out, outs[rank]);
  }
  pieces_ = threads::BufferPlan(calls);
}

std::int64_t DirectPlan::claim(std::uint64_t phase) {
  const std::int64_t n = ranks(), all = pieces_.pieces();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t share = (group_.rank + i) % n;
    const std::int64_t begin = all * share / n, count = all * (share + 1) / n - begin;
    RankState& state = group_.window->rank_state(static_cast<int>(share));
    const std::uint32_t next = count_one(state.claimed, phase, static_cast<std::uint32_t>(count));
    if (next < count) return begin + next;
  }
  return -1;
}

// One, so that who waits for the engine need not wait for the whole operation.
bool DirectPlan::run_piece(std::uint64_t phase) {
  const auto all = static_cast<std::uint32_t>(pieces_.pieces());
  std::atomic<std::uint64_t>& finished = group_.window->finished();
  more_ = false;
  if (all == 0) return true;
  RankState& own = group_.window->rank_state(group_.local_rank());
  own.at_work.store(1);
  if (!group_.has_failed()) {
    if (const std::int64_t piece = claim(phase); piece >= 0) {
      pieces_.run(piece);
      more_ = true;
      if (count_one(finished, phase, all) + 1 == all) group_.notify_all();
    }
  }
  own.at_work.store(0);
  const bool done = count_of_phase(finished.load(), phase) == all;
  more_ &= !done;
  return done;
}

std::vector<int> DirectPlan::at_work() const {
  std::vector<int> ranks;
  for (const int rank : group_.placement.local_ranks())
    if (rank != group_.rank && group_.window->rank_state(group_.placement.local_rank(rank)).at_work.load() != 0)
      ranks.push_back(rank);
  return ranks;
}

bool DirectPlan::held() const {
  if (!direct_) return staged_->held();
  if (at_work().empty()) return false;
  if (!held_since_) held_since_ = Clock::now();
  return Clock::now() - *held_since_ < kGrace;
}

}  // namespace lockstep::processes
