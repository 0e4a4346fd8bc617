#include "parallel/whole_weights.h"

#include <algorithm>

#include "spec/lifetimes.h"

namespace lockstep {

WholeWeights::WholeWeights(const Options& options, std::map<int, UnitStorage>& storage, ReplicaGroups& groups,
                           Memory& memory)
    : layouts_(options.layouts),
      storage_(storage),
      groups_(groups),
      overlap_(options.overlap),
      root_(options.root),
      pending_(layouts_.size()) {
  std::int64_t bytes = 0;
  offsets_[0] = places(options.evaluation, bytes);
  offsets_[1] = places(options.step, bytes);
  if (bytes > 0) gathered_ = memory.allocate(bytes, Tag::gathered);
}

std::vector<std::int64_t> WholeWeights::places(const std::vector<Action>& list, std::int64_t& most) const {
  const int width = size_of(storage_.begin()->second.flat_weight().dtype());
  Lifetimes lives(kAlignment);
  std::vector<std::pair<std::int64_t, int>> found;  // where each gather stands in the list, and its unit
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == ActionKind::gather) found.emplace_back(i, list[i].unit);
  for (const auto& [begin, unit] : found) {
    std::int64_t end = begin;
    while (list[static_cast<std::size_t>(end)] != Action{ActionKind::release, unit}) ++end;
    lives.add(groups_.cut().padded(layouts_[unit]->owned()) * width, begin, end);
  }
  most = std::max(most, lives.plan());
  std::vector<std::int64_t> offsets;
  for (std::size_t k = 0; k < found.size(); ++k) offsets.push_back(lives.offset(static_cast<int>(k)) / width);
  return offsets;
}

void WholeWeights::publish(int unit) {
  const UnitStorage& storage = storage_.at(unit);
  if (root_)
    pending_[unit] = groups_.all().broadcast(storage.flat_weight(), *root_);
  else
    pending_[unit] = groups_.sharers().all_gather(storage.flat_weight(), storage.own_weight());
  if (!overlap_) ready(unit);
}

void WholeWeights::begin(bool training) {
  training_ = training;
  next_ = 0;
}

Tensor WholeWeights::gather(int unit) {
  const Tensor part = storage_.at(unit).own_weight();
  const Tensor whole = view(gathered_, part.dtype(), {groups_.cut().padded(layouts_[unit]->owned())},
                            offsets_[training_ ? 1 : 0].at(next_++));
  pending_[unit] = groups_.sharers().all_gather(whole, part);
  if (!overlap_) ready(unit);
  return whole;
}

void WholeWeights::release(int unit) { ready(unit); }

void WholeWeights::ready(int unit) {
  if (!pending_[unit]) return;
  pending_[unit]->wait();
  pending_[unit].reset();
}

}  // namespace lockstep
