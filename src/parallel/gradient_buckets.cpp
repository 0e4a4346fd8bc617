#include "parallel/gradient_buckets.h"

#include <algorithm>

namespace lockstep {

namespace {

// The parameters of a unit that it owns, by where they begin in its flat buffer.
std::vector<std::int64_t> begins_of(const UnitLayout& layout) {
  std::vector<std::int64_t> begins;
  for (int p = 0; p < static_cast<int>(layout.parameters().size()); ++p)
    if (!layout.parameters()[p].tied) begins.push_back(layout.offset(p));
  std::ranges::sort(begins);
  return begins;
}

}  // namespace

GradientBuckets::GradientBuckets(std::span<const UnitLayout* const> layouts, std::span<const int> order,
                                 const Options& options, Communicator& ranks, Memory& memory)
    : options_(options),
      ranks_(ranks),
      begins_(layouts.size()),
      sizes_(layouts.size()),
      order_(order.begin(), order.end()) {
  LOCKSTEP_CHECK(order.size() == layouts.size(), "{} units in an order of {}", layouts.size(), order.size());
  const std::int64_t most = options.bytes / size_of(options.dtype);
  std::int64_t begin = 0;  // of the bucket that is being filled
  for (const int unit : order) {
    const UnitLayout& layout = *layouts[unit];
    begins_[unit] = elements_;
    sizes_[unit] = layout.owned();
    const std::vector<std::int64_t> starts = begins_of(layout);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const std::int64_t at = elements_ + starts[i];
      const std::int64_t end = elements_ + (i + 1 < starts.size() ? starts[i + 1] : layout.owned());
      if (at > begin && end - begin > most) {
        ends_.push_back(at);
        begin = at;
      }
    }
    elements_ += layout.owned();
  }
  if (elements_ > begin) ends_.push_back(elements_);
  if (memory.device() == Device::cpu) shared_ = ranks.memory(memory.ledger());
  buffer_ = (shared_ ? *shared_ : memory).allocate(elements_ * size_of(options.dtype), Tag::gradient, "all units");
  pending_.reserve(ends_.size());
}

Tensor GradientBuckets::of(int unit) const { return view(buffer_, options_.dtype, {sizes_[unit]}, begins_[unit]); }

void GradientBuckets::whole(int unit) {
  LOCKSTEP_CHECK(units_whole_ < order_.size() && order_[units_whole_] == unit, "unit {} is whole out of its turn",
                 unit);
  const std::int64_t filled = begins_[unit] + sizes_[unit];
  ++units_whole_;
  for (; started_ < ends_.size() && ends_[started_] <= filled; ++started_)
    start(started_ == 0 ? 0 : ends_[started_ - 1], ends_[started_]);
}

void GradientBuckets::start(std::int64_t begin, std::int64_t end) {
  const Tensor bucket = view(buffer_, options_.dtype, {end - begin}, begin);
  const Reducing how{.algorithm = options_.algorithm};
  if (options_.root) {
    const bool here = ranks_.rank() == *options_.root;
    pending_.push_back(ranks_.reduce(here ? bucket : Tensor{}, bucket, *options_.root, how));
  } else {
    pending_.push_back(ranks_.all_reduce(bucket, how));
  }
  if (!options_.overlap) pending_.back()->wait();
}

void GradientBuckets::wait() {
  if (units_whole_ == 0) return;
  LOCKSTEP_CHECK(started_ == ends_.size(), "{} of {} buckets are whole", started_, ends_.size());
  for (const auto& bucket : pending_) bucket->wait();
  pending_.clear();
  units_whole_ = started_ = 0;
}

}  // namespace lockstep
