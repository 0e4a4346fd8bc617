#include "parallel/server_gradients.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/tree_sum.h"

namespace lockstep {

ServerGradients::ServerGradients(const Options& options, ZeroGroups& groups, Memory& memory, Stream& stream)
    : links_(*groups.servers()),
      stream_(stream),
      dtype_(options.dtype),
      joins_(balanced_joins(links_.senders())),
      arriving_(options.overlap ? 2 : 1) {
  std::int64_t elements = 0;
  std::vector<std::int64_t> begins, sizes;
  for (const UnitLayout* layout : options.layouts) {
    begins.push_back(elements);
    sizes.push_back(groups.shard().elements(layout->owned()));
    elements += sizes.back();
    most_ = std::max(most_, sizes.back() * links_.senders());
  }
  kept_buffer_ = memory.allocate(elements * size_of(dtype_), Tag::gradient, "all units");
  fill({.y = view(kept_buffer_, dtype_, {elements}), .value = 0}, stream);
  for (std::size_t u = 0; u < sizes.size(); ++u) kept_.push_back(view(kept_buffer_, dtype_, {sizes[u]}, begins[u]));
  if (!sums()) return;
  room_ = memory.allocate(std::ssize(arriving_) * most_ * size_of(dtype_), Tag::communication, "gradients of workers");
}

const std::vector<Tensor>& ServerGradients::open(int unit, int) {
  LOCKSTEP_CHECK(false, "a parameter server computes unit {}", unit);
}

void ServerGradients::whole(int unit, int) {
  if (!sums()) return coming_.push_back(links_.receive(kept_[static_cast<std::size_t>(unit)]));
  Arriving& one = arriving_[next_];
  add_up(one);  // what came in this room before
  const std::int64_t elements = kept_[static_cast<std::size_t>(unit)].elements() * links_.senders();
  one.unit = unit;
  one.all = view(room_, dtype_, {elements}, static_cast<std::int64_t>(next_) * most_);
  one.started = links_.receive(one.all);
  next_ = (next_ + 1) % arriving_.size();
  add_up(arriving_[next_]);  // while this one comes
}

void ServerGradients::add_up(Arriving& one) {
  if (!one.started) return;
  one.started->wait();
  one.started.reset();
  const Tensor& sum = kept_[static_cast<std::size_t>(one.unit)];
  std::vector<ConstTensor> shards;
  for (int worker = 0; worker < links_.senders(); ++worker)
    shards.push_back(one.all.slice(0, worker * sum.elements(), sum.elements()));
  tree_sum({.outs = {&sum, 1}, .ins = shards, .joins = joins_}, stream_);
}

void ServerGradients::wait() {
  for (const Communicator::Started& one : coming_) one->wait();
  coming_.clear();
  for (std::size_t i = 0; i < arriving_.size(); ++i) add_up(arriving_[(next_ + i) % arriving_.size()]);
}

}  // namespace lockstep
