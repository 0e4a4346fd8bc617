#include "parallel/zero_gradients.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/elementwise.h"
#include "spec/step/lifetimes.h"

namespace lockstep {

ZeroGradients::ZeroGradients(const Options& options, ZeroGroups& groups, Memory& memory, Stream& stream)
    : groups_(groups),
      stream_(stream),
      tie_(options.tie),
      layouts_(options.layouts),
      dtype_(options.dtype),
      offloaded_(options.offloaded),
      complete_(options.complete),
      sums_(groups, options.algorithm, options.overlap) {
  plan(options, memory);
  keep(options, memory);
  if (tie_) {
    std::int64_t most = 0;  // that any rank has: all take as much
    for (std::int64_t r = 0; r < groups.shard().count; ++r)
      most = std::max(most, tied_range(r).second - tied_range(r).first);
    kept_tied_buffer_ = memory.allocate(most * size_of(dtype_), Tag::gradient, "tied");
    const auto [begin, end] = tied_range(groups.shard().index);
    kept_tied_ = view(kept_tied_buffer_, dtype_, {end - begin});
  }
  if (options.compress) compress(options, memory);
  if (!offloaded_.empty()) plan_visits(options, memory);
  current_ = passes_.size() - 1;
}

void ZeroGradients::compress(const Options& options, Memory& memory) {
  const Shard shard = groups_.shard();
  std::vector<CompressedSums::Site> sites;
  for (const UnitLayout* layout : layouts_) {
    CompressedSums::Site& site = sites.emplace_back(
        CompressedSums::Site{.parameters = parameter_ranges(*layout), .elements = shard.padded(layout->owned())});
    for (std::int64_t r = 0; r <= shard.count && groups_.sharded(); ++r)
      site.shards.push_back(r * shard.elements(layout->owned()));
  }
  if (tie_ && tie_->has_borrower) {
    const std::int64_t elements = tie_->owner->parameters()[tie_->owner_parameter].elements();
    CompressedSums::Site& site =
        sites.emplace_back(CompressedSums::Site{.parameters = {{0, elements}}, .elements = elements});
    for (std::int64_t r = 0; r < shard.count && groups_.sharded(); ++r) site.shards.push_back(tied_range(r).first);
    if (groups_.sharded()) site.shards.push_back(elements);
  }
  compressed_.emplace(CompressedSums::Options{.form = options.compress,
                                              .feedback = options.feedback,
                                              .dtype = dtype_,
                                              .overlap = options.overlap,
                                              .sites = std::move(sites)},
                      groups_.all(), memory, stream_);
}

void ZeroGradients::sum_owed() {
  if (compressed_) compressed_->sum_owed();
}

void ZeroGradients::deal_owed() {
  if (compressed_) compressed_->deal_owed();
}

std::vector<Gradients::Owed> ZeroGradients::owed() const {
  std::vector<Owed> all;
  for (int unit = 0; unit < static_cast<int>(layouts_.size()) && compressed_; ++unit)
    if (const auto [begin, elements] = compressed_->owed(unit); elements) all.push_back({unit, begin, elements});
  return all;
}

void ZeroGradients::settle_sums(std::size_t most) { compressed_ ? compressed_->settle(most) : sums_.settle(most); }

// Room for what is kept: one buffer, and of each offloaded unit its own elsewhere.
void ZeroGradients::keep(const Options& options, Memory& memory) {
  std::vector<std::int64_t> parts;
  std::int64_t elements = 0;
  for (std::size_t u = 0; u < layouts_.size(); ++u) {
    parts.push_back(groups_.shard().elements(layouts_[u]->owned()));
    if (!is_offloaded(static_cast<int>(u))) elements += parts.back();
  }
  kept_buffer_ = memory.allocate(elements * size_of(dtype_), Tag::gradient, "all units");
  fill({.y = view(kept_buffer_, dtype_, {elements}), .value = 0}, stream_);
  std::int64_t at = 0;
  for (std::size_t u = 0; u < layouts_.size(); ++u) {
    if (is_offloaded(static_cast<int>(u)) && parts[u] > 0) {
      offloaded_kept_.push_back(
          options.offload->allocate(parts[u] * size_of(dtype_), Tag::gradient, layouts_[u]->name()));
      kept_.push_back(view(offloaded_kept_.back(), dtype_, {parts[u]}));
      clear(kept_.back(), stream_);
      continue;
    }
    kept_.push_back(view(kept_buffer_, dtype_, {parts[u]}, at));
    at += parts[u];
  }
}

bool ZeroGradients::joins_offloaded() const {
  return tie_ && tie_->has_owner && is_offloaded(tie_->owner_unit) && kept_tied_.elements() > 0;
}

// Sums end in the order in which they begin; a tied weight's comes last.
void ZeroGradients::plan_visits(const Options& options, Memory& memory) {
  std::vector<Visits::Visit> order;
  for (const Action& a : options.actions)
    if (a.kind == ActionKind::reduce && is_offloaded(a.unit))
      order.push_back({.tensor = a.unit, .brings = a.micro > 0});
  if (joins_offloaded()) order.push_back({.tensor = tie_->owner_unit});
  visits_.emplace(Visits::Options{.tensors = kept_,
                                  .order = order,
                                  .on_disk = options.offload_on_disk,
                                  .rooms = options.rooms,
                                  .tag = Tag::gradient,
                                  .name = "on their way"},
                  memory, stream_);
}

void ZeroGradients::wait_until_back(Stream& stream) {
  if (visits_) visits_->wait_until_back(stream);
}

void ZeroGradients::settle() {
  if (visits_) visits_->settle();
}

// A pass lives from its first writer to the first of the call after the next.
void ZeroGradients::plan(const Options& options, Memory& memory) {
  const std::vector<Action>& actions = options.actions;
  const int last = static_cast<int>(layouts_.size()) - 1;
  std::map<std::pair<int, int>, std::size_t> known;
  std::vector<std::int64_t> begins;
  std::size_t reduced = 0;
  int call = 0;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    const bool writes = a.kind == ActionKind::backward_weight ||
                        (a.kind == ActionKind::forward && a.unit == last && layouts_.back()->trains());
    if (writes && known.try_emplace({a.unit, a.micro}, passes_.size()).second) {
      passes_.push_back({a.unit, a.micro, 0, 0});
      begins.push_back(static_cast<std::int64_t>(i));
    }
    if (a.kind != ActionKind::reduce) continue;
    LOCKSTEP_CHECK(known.at({a.unit, a.micro}) == reduced, "{} is reduced out of the order of writing", to_string(a));
    passes_[reduced++].call = call;
    call += !goes_with_next(actions, i, options.shape);
  }
  std::vector<std::int64_t> call_begins;
  for (std::size_t k = 0; k < passes_.size(); ++k)
    if (k == 0 || passes_[k].call != passes_[k - 1].call) call_begins.push_back(begins[k]);
  Lifetimes lives(kAlignment);
  for (std::size_t k = 0; k < passes_.size(); ++k) {
    const int unit = passes_[k].unit;
    const std::size_t next = static_cast<std::size_t>(passes_[k].call) + 2;
    const std::int64_t end = next < call_begins.size() ? call_begins[next] - 1 : std::ssize(actions);
    const std::int64_t elements = groups_.shard().padded(layouts_[unit]->owned()) + tied_elements(unit);
    lives.add(elements * size_of(dtype_), begins[k], std::max(begins[k], end));
  }
  const std::int64_t bytes = lives.plan();
  for (std::size_t k = 0; k < passes_.size(); ++k)
    passes_[k].offset = lives.offset(static_cast<int>(k)) / size_of(dtype_);
  buffer_ = memory.allocate(bytes, Tag::communication, "gradients on their way");
}

const std::vector<Tensor>& ZeroGradients::open(int unit, int micro) {
  const auto is = [&](const Pass& pass) { return pass.unit == unit && pass.micro == micro; };
  if (is(passes_[current_]) && !tensors_.empty()) return tensors_;
  const int call_before = passes_[current_].call;
  current_ = (current_ + 1) % passes_.size();
  const Pass& pass = passes_[current_];
  LOCKSTEP_CHECK(is(pass), "unit {}, micro-batch {} is written out of its turn", unit, micro);
  if (current_ == 0 || pass.call != call_before) {
    sums_before_ = std::exchange(sums_now_, 0);
    settle_sums(sums_before_);
  }
  const UnitLayout& layout = *layouts_[unit];
  const std::int64_t tied = tied_elements(unit);
  flat_ = flat_of(pass);
  tied_ = tied > 0 ? view(buffer_, dtype_, {tied}, pass.offset + flat_.elements()) : Tensor{};
  tensors_ = parameters_in(layout, flat_, tied_);
  clear_padding(layout);
  return tensors_;
}

// What lay there before is no gradient of padding, which is summed and counted in the norm like all else.
void ZeroGradients::clear_padding(const UnitLayout& layout) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> used;
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const StoredParameter& stored = layout.parameters()[p];
    if (!stored.tied && !stored.frozen) used.emplace_back(layout.offset(static_cast<int>(p)), stored.elements());
  }
  std::ranges::sort(used);
  used.emplace_back(flat_.elements(), 0);
  std::int64_t end = 0;
  for (const auto& [begin, elements] : used) {
    if (begin > end) fill({.y = flat_.slice(0, end, begin - end), .value = 0}, stream_);
    end = begin + elements;
  }
}

Tensor ZeroGradients::flat_of(const Pass& pass) const {
  return view(buffer_, dtype_, {groups_.shard().padded(layouts_[pass.unit]->owned())}, pass.offset);
}

void ZeroGradients::whole(int unit, int micro) {
  const int call = passes_[current_].call;
  std::size_t at = current_;
  while (at > 0 && passes_[at].unit != unit && passes_[at - 1].call == call) --at;
  const Pass& pass = passes_[at];
  LOCKSTEP_CHECK(pass.unit == unit && pass.micro == micro, "unit {} is not being written", unit);
  if (complete_) complete_(unit, flat_of(pass));
  if (tie_ && unit == tie_->borrower_unit) sum_tied(micro == 0);
  if (tie_ && unit == tie_->owner_unit) joins_tied_ = true;
  complete_passes_.push_back(&pass);
  if (at == current_) sum_call();  // which was written last
}

void ZeroGradients::wait() {
  settle_sums();
  if (!std::exchange(joins_tied_, false) || kept_tied_.elements() == 0) return;
  const Tensor kept = joins_offloaded() ? visits_->enter(tie_->owner_unit) : kept_[tie_->owner_unit];
  const std::int64_t table = tie_->owner->offset(tie_->owner_parameter) - groups_.shard().begin(tie_->owner->owned());
  const Tensor into = kept.slice(0, table + tied_range(groups_.shard().index).first, kept_tied_.elements());
  add({.y = into, .a = into, .b = kept_tied_}, stream_);
  if (joins_offloaded()) visits_->leave(tie_->owner_unit);
}

Tensor ZeroGradients::tied() {
  if (tie_->has_borrower) settle_sums();
  return kept_tied_;
}

std::pair<std::int64_t, std::int64_t> ZeroGradients::tied_range(std::int64_t part) const {
  const std::int64_t begin = tie_->owner->offset(tie_->owner_parameter),
                     end = begin + tie_->owner->parameters()[tie_->owner_parameter].elements(),
                     each = groups_.shard().elements(tie_->owner->owned());
  return {std::clamp(part * each, begin, end) - begin, std::clamp((part + 1) * each, begin, end) - begin};
}

// All units of the current call.
void ZeroGradients::sum_call() {
  struct Added {
    int unit;
    Tensor part;
    bool first;
  };
  std::vector<Operands> all;
  std::vector<Added> later;
  for (const Pass* pass : complete_passes_) {
    const Tensor kept = kept_[pass->unit], flat = flat_of(*pass);
    const Tensor part = flat.slice(0, groups_.shard().begin(layouts_[pass->unit]->owned()), kept.elements());
    const bool first = pass->micro == 0, adds = !first || is_offloaded(pass->unit);
    all.push_back({adds ? part : kept, flat});
    if (adds) later.push_back({pass->unit, part, first});
  }
  if (compressed_) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::function<void()> after;
      if (const auto one = std::ranges::find(later, complete_passes_[i]->unit, &Added::unit); one != later.end())
        after = [this, added = *one] { add_to_kept(added.unit, added.part, added.first); };
      compressed_->start(complete_passes_[i]->unit, all[i].in, all[i].out, std::move(after));
      ++sums_now_;
    }
    complete_passes_.clear();
    return;
  }
  complete_passes_.clear();
  GradientSums::Sum sum{.in = all.front().in, .out = all.front().out, .also = {all.begin() + 1, all.end()}};
  if (!later.empty())
    sum.after = [this, later = std::move(later)] {
      for (const Added& one : later) add_to_kept(one.unit, one.part, one.first);
    };
  sums_.start(std::move(sum));
  ++sums_now_;
}

// Where it is offloaded, the first of a step too.
void ZeroGradients::add_to_kept(int unit, const Tensor& part, bool first) {
  const bool offloaded = is_offloaded(unit);
  const Tensor kept = offloaded ? visits_->enter(unit) : kept_[unit];
  if (first)
    cast({.y = kept, .x = part}, stream_);
  else
    add({.y = kept, .a = kept, .b = part}, stream_);
  if (offloaded) visits_->leave(unit);
}

// Sharded as the unit that owns the weight is.
void ZeroGradients::sum_tied(bool first) {
  const Shard shard = groups_.shard();
  Communicator::Counts counts;
  for (std::int64_t r = 0; r < shard.count; ++r) counts.push_back(tied_range(r).second - tied_range(r).first);
  const auto [from, to] = tied_range(shard.index);
  const Tensor all = tied_.slice(0, 0, tie_->owner->parameters()[tie_->owner_parameter].elements());
  const Tensor part = all.slice(0, from, to - from);
  ++sums_now_;
  if (compressed_)
    return compressed_->start(
        static_cast<int>(layouts_.size()), all, first ? kept_tied_ : part,
        first || part.elements() == 0 ? std::function<void()>{}
                                      : [this, part] { add({.y = kept_tied_, .a = kept_tied_, .b = part}, stream_); });
  GradientSums::Sum sum{.in = all, .out = first ? kept_tied_ : part, .counts = counts};
  if (!first && part.elements() > 0)
    sum.after = [this, part] { add({.y = kept_tied_, .a = kept_tied_, .b = part}, stream_); };
  sums_.start(std::move(sum));
}

}  // namespace lockstep
