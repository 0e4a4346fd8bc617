#include "parallel/ddp_buckets.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"

namespace lockstep {

DdpBuckets::DdpBuckets(const Options& options, const Buckets& buckets, ZeroGroups& groups, Memory& memory,
                       Stream& stream)
    : groups_(groups),
      stream_(stream),
      tie_(options.tie),
      layouts_(options.layouts),
      dtype_(options.dtype),
      overlap_(options.overlap),
      how_{.algorithm = options.algorithm},
      complete_(options.complete),
      root_(options.root),
      begins_(layouts_.size()),
      sizes_(layouts_.size()),
      sums_(groups, options.algorithm, options.overlap) {
  for (std::size_t i = 0; i < options.actions.size(); ++i)
    if (options.actions[i].kind == ActionKind::reduce) {
      order_.push_back(options.actions[i].unit);
      ends_call_.push_back(!goes_with_next(options.actions, i, options.shape));
    }
  if (options.rows) rows_.emplace(*options.rows, groups.all(), memory, stream);
  cut_into_buckets(buckets);
  if (options.compress) compress(options, memory);
  buffer_ = memory.allocate(elements_ * size_of(dtype_), Tag::gradient, "all units");
  fill({.y = view(buffer_, dtype_, {elements_}), .value = 0}, stream);  // padding stays so
  pending_.reserve(ends_.size() * static_cast<std::size_t>(groups_.servers() ? groups_.shard().count : 1));
  for (std::size_t u = 0; u < layouts_.size(); ++u) {
    const std::int64_t tied = layouts_[u]->elements() - layouts_[u]->owned();
    if (tied > 0) {
      tied_ = memory.allocate(tied * size_of(dtype_), Tag::gradient, layouts_[u]->name());
      fill({.y = view(tied_, dtype_, {tied}), .value = 0}, stream);
    }
    tensors_.push_back(
        parameters_in(*layouts_[u], flat(static_cast<int>(u)), tied > 0 ? view(tied_, dtype_, {tied}) : Tensor{}));
  }
  if (!tie_) return;
  const std::int64_t elements = tie_->owner->parameters()[tie_->owner_parameter].elements();
  if (tie_->has_borrower) {
    tied_gradient_ = tensors_[tie_->borrower_unit][tie_->borrower_parameter].reshape({elements});
  } else {
    tied_ = memory.allocate(elements * size_of(dtype_), Tag::gradient, tie_->owner->name());
    tied_gradient_ = view(tied_, dtype_, {elements});
  }
}

void DdpBuckets::cut_into_buckets(const Buckets& buckets) {
  const std::int64_t most = buckets.bytes / size_of(dtype_);
  std::int64_t begin = 0;  // of the bucket that is being filled
  for (const int unit : order_) {
    const UnitLayout& layout = *layouts_[unit];
    begins_[unit] = elements_;
    sizes_[unit] = groups_.shard().padded(layout.owned());
    const std::vector<CompressedSum::Range> parameters = parameter_ranges(layout);
    for (std::size_t i = 0; i < parameters.size() && !goes_by_unit(); ++i) {
      const std::int64_t at = elements_ + parameters[i].begin;
      const std::int64_t end = elements_ + (i + 1 < parameters.size() ? parameters[i + 1].begin : layout.owned());
      const bool is_table = rows_ && unit == 0 && parameters[i].begin == layout.offset(0);
      if (at > begin && (end - begin > most || is_table || begin == table_at_)) {
        ends_.push_back(at);
        begin = at;
      }
      if (is_table) table_at_ = at;
    }
    elements_ += sizes_[unit];
    if (goes_by_unit()) ends_.push_back(begin = elements_);
  }
  if (elements_ > begin) ends_.push_back(elements_);
}

void DdpBuckets::compress(const Options& options, Memory& memory) {
  std::vector<CompressedSum::Range> parameters;  // of all units
  for (const int unit : order_)
    for (const CompressedSum::Range& range : parameter_ranges(*layouts_[unit]))
      parameters.push_back({begins_[unit] + range.begin, begins_[unit] + range.end});
  std::vector<CompressedSums::Site> sites;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends_) {
    CompressedSums::Site& site = sites.emplace_back(CompressedSums::Site{.parameters = {}, .elements = end - begin});
    for (const CompressedSum::Range& range : CompressedSum::within(parameters, begin, end))
      site.parameters.push_back({range.begin - begin, range.end - begin});
    const std::int64_t shards = groups_.shard().count;
    for (std::int64_t r = 0; r <= shards && groups_.sharded(); ++r) site.shards.push_back(r * (site.elements / shards));
    begin = end;
  }
  compressed_.emplace(CompressedSums::Options{.form = options.compress,
                                              .feedback = options.feedback,
                                              .dtype = dtype_,
                                              .overlap = overlap_,
                                              .sites = std::move(sites)},
                      groups_.all(), memory, stream_);
}

Tensor DdpBuckets::reduced(int unit) const {
  const std::int64_t owned = layouts_[unit]->owned();
  return flat(unit).slice(0, groups_.shard().begin(owned), groups_.shard().elements(owned));
}

void DdpBuckets::sum_owed() {
  if (compressed_) compressed_->sum_owed();
}

void DdpBuckets::deal_owed() {
  if (compressed_) compressed_->deal_owed();
}

// A bucket may have parts of several units, and a unit parts in several buckets.
std::vector<Gradients::Owed> DdpBuckets::owed() const {
  std::vector<Owed> all;
  for (std::size_t s = 0; s < ends_.size() && compressed_; ++s) {
    const auto [from, elements] = compressed_->owed(static_cast<int>(s));
    if (elements.none()) continue;
    const std::int64_t begin = (s == 0 ? 0 : ends_[s - 1]) + from, end = begin + elements.elements();
    for (const int unit : order_) {
      const std::int64_t first = std::max(begin, begins_[unit]), last = std::min(end, begins_[unit] + sizes_[unit]);
      if (first < last) all.push_back({unit, first - begins_[unit], elements.slice(0, first - begin, last - first)});
    }
  }
  return all;
}

// The two homes of a tied weight's gradient become one, and this rank's gradient that of the global batch. Every target
// has the weight of the global batch already, so the ranks' parts are summed.
void DdpBuckets::whole(int unit, int) {
  LOCKSTEP_CHECK(units_whole_ < order_.size() && order_[units_whole_] == unit, "unit {} is whole out of its turn",
                 unit);
  if (tie_ && unit == tie_->owner_unit) {
    const Tensor owner = tensors_[unit][tie_->owner_parameter].reshape(tied_gradient_.shape());
    add({.y = owner, .a = owner, .b = tied_gradient_}, stream_);
  }
  if (complete_) complete_(unit, flat(unit));
  const std::int64_t filled = begins_[unit] + sizes_[unit];
  ++units_whole_;
  if (groups_.sharded() && compressed_) {
    compressed_->start(static_cast<int>(started_++), flat(unit), reduced(unit));
    return;
  }
  if (groups_.sharded() && !groups_.servers()) {
    if (rows_ && unit == 0 && !rows_->dense())
      sum_unit_of_rows();
    else
      together_.push_back({reduced(unit), flat(unit)});
    ++started_;
    if (!ends_call_[units_whole_ - 1] || together_.empty()) return;
    sums_.start(
        {.in = together_.front().in, .out = together_.front().out, .also = {together_.begin() + 1, together_.end()}});
    together_.clear();
    return;
  }
  for (; started_ < ends_.size() && ends_[started_] <= filled; ++started_)
    start(started_ == 0 ? 0 : ends_[started_ - 1], ends_[started_]);
}

void DdpBuckets::begin(std::span<const std::int32_t> tokens) {
  if (rows_) rows_->find(tokens);
  if (compressed_) compressed_->begin();
}

Tensor DdpBuckets::table() const { return tensors_[0][0].reshape({tensors_[0][0].elements()}); }

void DdpBuckets::sum_rows() {
  unpacks_ = true;
  if (const Tensor packed = rows_->pack(table()); packed.elements() > 0)
    pending_.push_back(groups_.all().all_reduce(packed, how_));
}

// Rows are no shards: every rank gets all sums.
void DdpBuckets::sum_unit_of_rows() {
  sum_rows();
  for (std::size_t p = 1; p < tensors_[0].size(); ++p)
    pending_.push_back(groups_.all().all_reduce(tensors_[0][p].reshape({tensors_[0][p].elements()}), how_));
  if (!overlap_) wait_for_buckets();
}

void DdpBuckets::wait_for_buckets() {
  for (const auto& bucket : pending_) bucket->wait();
  pending_.clear();
}

void DdpBuckets::start(std::int64_t begin, std::int64_t end) {
  const Tensor bucket = view(buffer_, dtype_, {end - begin}, begin);
  if (compressed_) return compressed_->start(static_cast<int>(started_), bucket, bucket);
  Communicator& ranks = groups_.all();
  if (ServerLinks* const servers = groups_.servers())
    servers->push(bucket, pending_);
  else if (begin == table_at_ && !rows_->dense())
    sum_rows();
  else if (root_)
    pending_.push_back(ranks.reduce(ranks.rank() == *root_ ? bucket : Tensor{}, bucket, *root_, how_));
  else
    pending_.push_back(ranks.all_reduce(bucket, how_));
  if (!overlap_) wait_for_buckets();
}

void DdpBuckets::wait() {
  if (units_whole_ == 0) return;
  LOCKSTEP_CHECK(started_ == ends_.size(), "{} of {} buckets are whole", started_, ends_.size());
  wait_for_buckets();
  if (std::exchange(unpacks_, false)) rows_->unpack(table());
  sums_.settle();
  if (compressed_) compressed_->settle();
  units_whole_ = started_ = 0;
}

}  // namespace lockstep
