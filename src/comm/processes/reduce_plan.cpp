#include "comm/processes/reduce_plan.h"

#include <algorithm>
#include <cstring>

#include "base/integers.h"

namespace lockstep::processes {

namespace {
constexpr std::int64_t kSmallBytes = 1 << 13;
}  // namespace

ReducePlan::ReducePlan(ProcessGroup& group, const Message& message, PlanContext context)
    : CollectivePlan(group, message, context),
      dtype_(dtype_of_message(message)),
      size_(size_of(dtype_)),
      wide_(size_of(wide_of(dtype_))),
      elements_(message.in.elements()),
      parts_(message.op == CommOp::reduce_scatter ? Parts(elements_, ranks(), message.counts)
                                                  : Parts(elements_, ranks())) {
  const std::int64_t slot = group.window->slot_bytes(), n = ranks();
  const bool hosts = group.several_hosts(), ring = message.algorithm == Algorithm::ring;
  small_ = !hosts && !ring && message.op == CommOp::all_reduce &&
           elements_ * size_ <= std::min<std::int64_t>(kSmallBytes, slot);
  each_ = slot / ((n + 1) * size_ + (hosts ? (n / 2 + 1) * wide_ : 0)) / (64 / size_) * (64 / size_);
  std::int64_t longest = 0;
  for (int piece = 0; piece < n; ++piece) longest = std::max(longest, parts_.size(piece));
  fragments_ = std::max<std::int64_t>(1, ceil_div(longest, each_));

  const bool own = message.op != CommOp::reduce;
  for (int piece = 0; piece < (hosts && ring && own ? n : 1); ++piece) {
    const int ends_on = !own ? message.peer : hosts && ring ? piece : group.rank;
    orders_.push_back(sum_order(message.op, message.algorithm, ranks(), ends_on));
    if (hosts) operands_.push_back(operands_of(orders_.back(), group.placement));
  }
  if (!hosts) return;
  const Placement& placement = group.placement;
  const int here = static_cast<int>(placement.local_ranks().size());
  for (int piece = 0; piece < n; ++piece) {
    if (placement.here(piece)) continue;
    for (int o = 0; o < static_cast<int>(operands(piece).size()); ++o) {
      const Operand& operand = operands(piece)[static_cast<std::size_t>(o)];
      if (operand.host != placement.mine() || !operand.folded()) continue;
      const int number = static_cast<int>(folds_.size());
      folds_.push_back({piece, o, number % here, number / here});
    }
  }
}

std::int64_t ReducePlan::steps() const {
  if (small_) return 2;
  if (!group_.several_hosts()) return fragments_ + (scatters() ? 1 : 2);
  return kPrelude + fragments_ * (scatters() ? sum_stage + 1 : take_stage + 1);
}

bool ReducePlan::run(std::int64_t step, std::uint64_t phase) {
  if (group_.several_hosts()) {
    if (step < kPrelude) return true;
    const std::int64_t stages = scatters() ? sum_stage + 1 : take_stage + 1;
    return stage(static_cast<Stage>((step - kPrelude) % stages), (step - kPrelude) / stages);
  }
  char* const slot = own_slot(phase + 1);
  if (small_) {
    if (step == 0)
      std::memcpy(slot, in(), static_cast<std::size_t>(elements_ * size_));
    else
      sum_small(phase);
    return true;
  }
  if (step < fragments_) put(step, slot);
  if (step >= 1 && step - 1 < fragments_) sum(step - 1, phase, slot);
  if (step >= 2) take(step - 2, phase);
  return true;
}

ReducePlan::Range ReducePlan::range(int piece, std::int64_t fragment) const {
  const std::int64_t at = fragment * each_;
  return {parts_.begin(piece) + at, std::clamp<std::int64_t>(parts_.size(piece) - at, 0, each_)};
}

const SumOrder& ReducePlan::order_of(int piece) const {
  return orders_.size() == 1 ? orders_[0] : orders_[static_cast<std::size_t>(piece)];
}

const std::vector<Operand>& ReducePlan::operands(int piece) const {
  return operands_.size() == 1 ? operands_[0] : operands_[static_cast<std::size_t>(piece)];
}

void ReducePlan::put(std::int64_t fragment, char* slot) const {
  for (int i = 1; i < ranks(); ++i) {
    const int piece = (group_.rank + i) % ranks();
    const Range r = range(piece, fragment);
    std::memcpy(slot + piece * each_ * size_, in() + r.begin * size_, static_cast<std::size_t>(r.count * size_));
  }
}

void ReducePlan::sum(std::int64_t fragment, std::uint64_t from, char* slot) {
  const Range r = range(group_.rank, fragment);
  if (r.count == 0) return;
  std::vector<ConstTensor> ins;
  for (const int rank : order_of(group_.rank).ranks) {
    const char* x = rank == group_.rank ? in() + r.begin * size_ : put_by(rank, from) + group_.rank * each_ * size_;
    ins.emplace_back(x, dtype_, Device::cpu, Shape{r.count});
  }
  std::vector<Tensor> outs;
  if (scatters() || wants_sums(group_.rank))
    outs.emplace_back(out() + (scatters() ? fragment * each_ : r.begin) * size_, dtype_, Device::cpu, Shape{r.count});
  if (message_.op == CommOp::all_reduce || (!scatters() && !wants_sums(group_.rank)))
    outs.emplace_back(slot + ranks() * each_ * size_, dtype_, Device::cpu, Shape{r.count});
  cpu::tree_sum_range({.outs = outs, .ins = ins, .joins = order_of(group_.rank).joins, .reduction = message_.reduction},
                      0, r.count);
}

void ReducePlan::sum_small(std::uint64_t from) {
  if (elements_ == 0) return;
  std::vector<ConstTensor> ins;
  for (const int rank : orders_[0].ranks)
    ins.emplace_back(rank == group_.rank ? in() : put_by(rank, from), dtype_, Device::cpu, Shape{elements_});
  const Tensor to(out(), dtype_, Device::cpu, Shape{elements_});
  cpu::tree_sum_range({.outs = {&to, 1}, .ins = ins, .joins = orders_[0].joins, .reduction = message_.reduction}, 0,
                      elements_);
}

void ReducePlan::take(std::int64_t fragment, std::uint64_t from) const {
  if (!wants_sums(group_.rank)) return;
  for (int i = 1; i < ranks(); ++i) {
    const int piece = (group_.rank + i) % ranks();
    const Range r = range(piece, fragment);
    const char* sums = put_by(piece, from) + (group_.placement.here(piece) ? ranks() * each_ * size_ : 0);
    std::memcpy(out() + r.begin * size_, sums, static_cast<std::size_t>(r.count * size_));
  }
}

// Several hosts.

bool ReducePlan::stage(Stage stage, std::int64_t fragment) {
  const bool leads = group_.placement.leads();
  switch (stage) {
    case put_stage:
      put(fragment, own_slot(kHalf));
      return true;
    case fold_stage:
      fold(fragment);
      return true;
    case give_stage:
      if (leads && !exchange_.under_way()) add_gifts(fragment);
      return !leads || exchange_.done();
    case sum_stage:
      sum_of_hosts(fragment);
      return true;
    case spread_stage:
      if (leads && !exchange_.under_way()) add_sums(fragment);
      return !leads || exchange_.done();
    case take_stage:
      take(fragment, kHalf);
      return true;
  }
  return true;
}

std::int64_t ReducePlan::operand_bytes(const Operand& operand, std::int64_t elements) const {
  return elements * (operand.folded() ? wide_ : size_);
}

char* ReducePlan::partial(std::uint64_t phase, const Fold& fold) const {
  return group_.window->slot(phase, fold.local_rank) + (ranks() + 1) * each_ * size_ + fold.place * each_ * wide_;
}

void ReducePlan::fold(std::int64_t fragment) {
  for (const Fold& fold : folds_) {
    const Range r = range(fold.piece, fragment);
    if (fold.local_rank != group_.local_rank() || r.count == 0) continue;
    const SumOrder& order = order_of(fold.piece);
    const Operand& operand = operands(fold.piece)[static_cast<std::size_t>(fold.operand)];
    std::vector<Summand> ins;
    for (int i = operand.first; i <= operand.last; ++i)
      ins.push_back({put_by(order.ranks[static_cast<std::size_t>(i)], kHalf) + fold.piece * each_ * size_});
    void* to = partial(kHalf, fold);
    context_.wide_sum.run({.outs = {&to, 1},
                           .wide = true,
                           .ins = ins,
                           .joins = joins_of(order, operand),
                           .dtype = dtype_,
                           .reduction = message_.reduction == Reduction::max ? Reduction::max : Reduction::sum,
                           .count = r.count});
  }
}

// What other hosts give to this host's pieces, in the order in which it lies in the inbox.
void ReducePlan::each_gift(const std::function<void(int piece, int operand, std::int64_t place)>& each) const {
  std::int64_t place = 0;
  for (const int piece : group_.placement.local_ranks())
    for (int o = 0; o < static_cast<int>(operands(piece).size()); ++o)
      if (operands(piece)[static_cast<std::size_t>(o)].host != group_.placement.mine())
        each(piece, o, place++ * each_ * wide_);
}

void ReducePlan::add_gifts(std::int64_t fragment) {
  const Placement& placement = group_.placement;
  auto fold = folds_.begin();
  for (int piece = 0; piece < ranks(); ++piece) {
    if (placement.here(piece)) continue;
    for (const Operand& operand : operands(piece)) {
      if (operand.host != placement.mine()) continue;
      const int rank = order_of(piece).ranks[static_cast<std::size_t>(operand.first)];
      const char* from = operand.folded() ? partial(kHalf, *fold++) : put_by(rank, kHalf) + piece * each_ * size_;
      exchange_.send(placement.host_of(piece), from, operand_bytes(operand, range(piece, fragment).count));
    }
  }
  each_gift([&](int piece, int o, std::int64_t place) {
    const Operand& operand = operands(piece)[static_cast<std::size_t>(o)];
    exchange_.receive(operand.host, group_.window->inbox(0) + place,
                      operand_bytes(operand, range(piece, fragment).count));
  });
}

void ReducePlan::sum_of_hosts(std::int64_t fragment) {
  const int me = group_.rank;
  const Range r = range(me, fragment);
  if (r.count == 0) return;
  const SumOrder& order = order_of(me);
  std::vector<Summand> ins(order.ranks.size());
  for (std::size_t i = 0; i < ins.size(); ++i) {
    const int rank = order.ranks[i];
    if (group_.placement.here(rank))
      ins[i] = {rank == me ? in() + r.begin * size_ : put_by(rank, kHalf) + me * each_ * size_};
  }
  each_gift([&](int piece, int o, std::int64_t place) {
    const Operand& operand = operands(piece)[static_cast<std::size_t>(o)];
    if (piece == me) ins[static_cast<std::size_t>(operand.first)] = {group_.window->inbox(0) + place, operand.folded()};
  });
  std::vector<void*> outs;
  if (scatters() || wants_sums(me)) outs.push_back(out() + (scatters() ? fragment * each_ : r.begin) * size_);
  if (!scatters()) outs.push_back(own_slot(kHalf) + ranks() * each_ * size_);
  context_.wide_sum.run({.outs = outs,
                         .ins = ins,
                         .joins = order.joins,
                         .dtype = dtype_,
                         .reduction = message_.reduction,
                         .count = r.count});
}

void ReducePlan::add_sums(std::int64_t fragment) {
  const Placement& placement = group_.placement;
  const auto wants = [&](int host) {
    return message_.op == CommOp::all_reduce || placement.host_of(message_.peer) == host;
  };
  for (int piece = 0; piece < ranks(); ++piece) {
    const std::int64_t bytes = range(piece, fragment).count * size_;
    if (!placement.here(piece)) {
      if (wants(placement.mine())) exchange_.receive(placement.host_of(piece), group_.window->inbox(piece), bytes);
      continue;
    }
    for (int host = 0; host < placement.hosts(); ++host)
      if (host != placement.mine() && wants(host))
        exchange_.send(host, put_by(piece, kHalf) + ranks() * each_ * size_, bytes);
  }
}

}  // namespace lockstep::processes
