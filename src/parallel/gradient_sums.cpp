#include "parallel/gradient_sums.h"

namespace lockstep {

std::vector<Operands> GradientSums::all_of(const Sum& sum) {
  std::vector<Operands> all{{sum.out, sum.in}};
  all.insert(all.end(), sum.also.begin(), sum.also.end());
  return all;
}

void GradientSums::start(Sum sum) {
  go_on();
  UnderWay& one = under_way_.emplace_back(UnderWay{std::move(sum), nullptr, nullptr});
  if (!groups_.sharded())
    one.scattered = groups_.all().all_reduce(all_of(one.sum), how_);
  else if (one.sum.counts.empty())
    one.scattered = groups_.sharers().reduce_scatter(all_of(one.sum), how_);
  else
    one.scattered = groups_.sharers().reduce_scatter(one.sum.out, one.sum.in, how_, one.sum.counts);
  if (!overlap_) settle();
}

void GradientSums::add_across(UnderWay& one) {
  one.scattered->wait();
  if (!groups_.across()) return;
  std::vector<Operands> shards = all_of(one.sum);
  for (Operands& shard : shards) shard.in = shard.out;
  one.added = groups_.across()->all_reduce(shards, how_);
}

void GradientSums::go_on() {
  if (!groups_.across()) return;
  for (UnderWay& one : under_way_) {
    if (one.added) continue;
    if (!one.scattered->done()) return;
    add_across(one);
  }
}

void GradientSums::settle(std::size_t most) {
  go_on();
  while (under_way_.size() > most) {
    UnderWay& oldest = under_way_.front();
    if (!oldest.added) add_across(oldest);
    if (oldest.added) oldest.added->wait();
    if (oldest.sum.after) oldest.sum.after();
    under_way_.pop_front();
  }
}

}  // namespace lockstep
