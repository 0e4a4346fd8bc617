#include "parallel/top_k_sum.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/top_k.h"

namespace lockstep {

TopKSum::TopKSum(const Options& options, Groups groups, Memory& memory, Stream& stream)
    : options_(options),
      groups_(groups),
      stream_(stream),
      own_{options.pieces[static_cast<std::size_t>(groups.first.rank())],
           options.pieces[static_cast<std::size_t>(groups.first.rank()) + 1]} {
  const auto choose_in = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t before = entries_;
    for (const Range& range : within(options_.parameters, begin, end)) {
      const auto count =
          static_cast<std::int64_t>(std::ceil(options_.form.share * static_cast<double>(range.elements())));
      choices_.push_back({range, entries_, count});
      entries_ += count;
    }
    return entries_ - before;
  };
  if (options_.gathers)
    choose_in(0, options_.pieces.back());
  else
    for (std::size_t r = 0; r + 1 < options_.pieces.size(); ++r)
      counts_.push_back(choose_in(options_.pieces[r], options_.pieces[r + 1]));
  const auto rank = static_cast<std::size_t>(groups_.first.rank());
  arriving_ = options_.gathers ? entries_ : counts_[rank];
  places_ = options_.gathers ? static_cast<std::int64_t>(rank) * entries_ : 0;
  const std::int64_t all = arriving_ * groups_.first.size(), width = size_of(options_.dtype);
  all_values_ = memory.allocate(all * width, Tag::communication, "compressed gradients");
  all_indices_ = memory.allocate(all * 4, Tag::communication, "compressed gradients");
  if (options_.gathers) return;
  values_ = memory.allocate(entries_ * width, Tag::communication, "compressed gradients");
  indices_ = memory.allocate(entries_ * 4, Tag::communication, "compressed gradients");
}

void TopKSum::start(const ConstTensor& in, const Tensor& out) {
  out_ = out;
  const Buffer& to_values = options_.gathers ? all_values_ : values_;
  const Buffer& to_indices = options_.gathers ? all_indices_ : indices_;
  for (const Choice& choice : choices_)
    select_top({.values = values(to_values, places_ + choice.first, choice.count),
                .indices = indices(to_indices, places_ + choice.first, choice.count),
                .residual = options_.residual ? options_.residual.slice(0, choice.range.begin, choice.range.elements())
                                              : Tensor{},
                .x = in.slice(0, choice.range.begin, choice.range.elements()),
                .first = choice.range.begin},
               stream_);
  const std::int64_t all = arriving_ * groups_.first.size();
  const Tensor mine = values(to_values, places_, entries_), places = indices(to_indices, places_, entries_);
  if (options_.gathers) {
    values_leg_ = groups_.first.all_gather(values(all_values_, 0, all), mine);
    indices_leg_ = groups_.first.all_gather(indices(all_indices_, 0, all), places);
  } else {
    values_leg_ = groups_.first.all_to_all(values(all_values_, 0, all), mine, counts_);
    indices_leg_ = groups_.first.all_to_all(indices(all_indices_, 0, all), places, counts_);
  }
}

void TopKSum::advance() {
  values_leg_->wait();
  indices_leg_->wait();
  const std::int64_t first = options_.gathers ? 0 : own_.begin;
  for (const Range& range : within(options_.parameters, first, first + out_.elements()))
    fill({.y = out_.slice(0, range.begin - first, range.elements()), .value = 0}, stream_);
  for (int r = 0; r < groups_.first.size() && arriving_ > 0; ++r)
    add_at({.y = out_,
            .indices = indices(all_indices_, r * arriving_, arriving_),
            .values = values(all_values_, r * arriving_, arriving_),
            .first = first},
           stream_);
}

}  // namespace lockstep
