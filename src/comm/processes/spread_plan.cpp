#include "comm/processes/spread_plan.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/integers.h"
#include "comm/processes/call_record.h"

namespace lockstep::processes {

namespace {

enum Stage : std::int64_t { put_stage, exchange_stage, take_stage };
constexpr std::int64_t kStages = 3;

bool cut_by_rank(CommOp op) { return op == CommOp::all_gather || op == CommOp::gather || op == CommOp::scatter; }

}  // namespace

SpreadPlan::SpreadPlan(ProcessGroup& group, const Message& message, PlanContext context)
    : CollectivePlan(group, message, context),
      size_(message.op == CommOp::barrier ? 1 : size_of(dtype_of_message(message))),
      parts_(cut_by_rank(message.op) ? Parts(count_of(message, ranks()), ranks(), message.counts)
                                     : Parts(count_of(message, ranks()), 1)) {
  const bool many = message.op == CommOp::scatter || message.op == CommOp::all_to_all;
  each_ = group.window->slot_bytes() / (many ? ranks() : 1) / 64 * 64 / size_;
  std::int64_t longest = 0;
  if (message.op == CommOp::all_to_all) {
    counts_.resize(static_cast<std::size_t>(ranks()));
    counts_[static_cast<std::size_t>(group.rank)] = message.counts;
  } else {
    for (int part = 0; part < (cut_by_rank(message.op) ? ranks() : 1); ++part)
      longest = std::max(longest, parts_.size(part));
  }
  fragments_ = std::max<std::int64_t>(1, ceil_div(longest, each_));
}

void SpreadPlan::set_records(const std::vector<const char*>& records) {
  if (message_.op != CommOp::all_to_all) return;
  std::int64_t longest = 0;
  for (int from = 0; from < ranks(); ++from) {
    const Message call = read_record(records[static_cast<std::size_t>(from)]);
    auto& counts = counts_[static_cast<std::size_t>(from)];
    counts = call.counts;
    if (counts.empty()) counts.assign(static_cast<std::size_t>(ranks()), call.in.elements() / ranks());
    longest = std::max(longest, *std::max_element(counts.begin(), counts.end()));
  }
  fragments_ = std::max<std::int64_t>(1, ceil_div(longest, each_));
}

std::int64_t SpreadPlan::steps() const {
  if (!group_.several_hosts()) return fragments_ + 1;
  return kPrelude + (message_.op == CommOp::barrier ? 1 : fragments_ * kStages);
}

bool SpreadPlan::run(std::int64_t step, std::uint64_t phase) {
  if (message_.op == CommOp::barrier) return true;
  if (!group_.several_hosts()) {
    if (step == 1) keep_own();
    if (step == 0 || step < fragments_) put(step, own_slot(phase + 1));
    if (step >= 1) take(step - 1, phase);
    return true;
  }
  if (step < kPrelude) return true;
  if (step == kPrelude) keep_own();
  const std::int64_t fragment = (step - kPrelude) / kStages;
  switch ((step - kPrelude) % kStages) {
    case put_stage:
      put(fragment, own_slot(kHalf));
      return true;
    case exchange_stage:
      if (!group_.placement.leads()) return true;
      if (!exchange_.under_way()) add_messages(fragment);
      return exchange_.done();
    default:
      take(fragment, kHalf);
      return true;
  }
}

std::int64_t SpreadPlan::given(int from, int to) const {
  const auto& counts = counts_[static_cast<std::size_t>(from)];
  return counts.empty() ? message_.in.elements() / ranks() : counts[static_cast<std::size_t>(to)];
}

std::vector<SpreadPlan::Block> SpreadPlan::blocks(int giver, std::int64_t fragment) const {
  const std::int64_t at = fragment * each_;
  const auto of = [&](std::int64_t n) { return std::clamp<std::int64_t>(n - at, 0, each_); };
  std::vector<Block> all;
  switch (message_.op) {
    case CommOp::all_gather:
      all.push_back({kAll, at, parts_.begin(giver) + at, of(parts_.size(giver)), 0});
      break;
    case CommOp::broadcast:
      if (giver == message_.peer) all.push_back({kAll, at, at, of(parts_.elements()), 0});
      break;
    case CommOp::gather:
      if (giver != message_.peer)
        all.push_back({message_.peer, at, parts_.begin(giver) + at, of(parts_.size(giver)), 0});
      break;
    case CommOp::scatter:
      for (int to = 0; to < ranks() && giver == message_.peer; ++to)
        if (to != giver) all.push_back({to, parts_.begin(to) + at, at, of(parts_.size(to)), to * each_ * size_});
      break;
    case CommOp::all_to_all: {
      std::int64_t from = 0;
      for (int to = 0; to < ranks(); from += given(giver, to++))
        if (to != giver) all.push_back({to, from + at, at, of(given(giver, to)), to * each_ * size_});
      break;
    }
    default:
      break;
  }
  std::erase_if(all, [](const Block& block) { return block.count == 0; });
  return all;
}

void SpreadPlan::put(std::int64_t fragment, char* slot) const {
  for (const Block& block : blocks(group_.rank, fragment))
    std::memcpy(slot + block.place, in() + block.from * size_, static_cast<std::size_t>(block.count * size_));
}

void SpreadPlan::take(std::int64_t fragment, std::uint64_t from) const {
  std::int64_t before = 0;  // of an all_to_all: what comes from the ranks before
  for (int giver = 0; giver < ranks(); ++giver) {
    if (giver != group_.rank)
      for (const Block& block : blocks(giver, fragment))
        if (block.to == kAll || block.to == group_.rank)
          std::memcpy(out() + (before + block.into) * size_, put_by(giver, from) + block.place,
                      static_cast<std::size_t>(block.count * size_));
    if (message_.op == CommOp::all_to_all) before += given(giver, group_.rank);
  }
}

// What a rank gives itself.
void SpreadPlan::keep_own() const {
  const int me = group_.rank;
  const bool root = message_.peer == me;
  const auto copy = [&](std::int64_t from, std::int64_t into, std::int64_t count) {
    const char* source = in() + from * size_;
    char* target = out() + into * size_;
    if (count > 0 && source != target) std::memcpy(target, source, static_cast<std::size_t>(count * size_));
  };
  if (message_.op == CommOp::all_gather || (message_.op == CommOp::gather && root))
    copy(0, parts_.begin(me), parts_.size(me));
  if (message_.op == CommOp::broadcast && root && message_.out) copy(0, 0, parts_.elements());
  if (message_.op == CommOp::scatter && root) copy(parts_.begin(me), 0, parts_.size(me));
  if (message_.op == CommOp::all_to_all) {
    std::int64_t from = 0, into = 0;
    for (int rank = 0; rank < me; ++rank) {
      from += given(me, rank);
      into += given(rank, me);
    }
    copy(from, into, given(me, me));
  }
}

void SpreadPlan::add_messages(std::int64_t fragment) {
  const Placement& placement = group_.placement;
  for (int giver = 0; giver < ranks(); ++giver)
    for (const Block& block : blocks(giver, fragment)) {
      const auto wants = [&](int host) { return block.to == kAll || placement.host_of(block.to) == host; };
      if (!placement.here(giver)) {
        if (wants(placement.mine()))
          exchange_.receive(placement.host_of(giver), group_.window->inbox(giver) + block.place, block.count * size_);
        continue;
      }
      for (int host = 0; host < placement.hosts(); ++host)
        if (host != placement.mine() && wants(host))
          exchange_.send(host, put_by(giver, kHalf) + block.place, block.count * size_);
    }
}

}  // namespace lockstep::processes
