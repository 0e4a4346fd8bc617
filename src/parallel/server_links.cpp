#include "parallel/server_links.h"

namespace lockstep {

namespace {

// Messages that are done when all of them are.
class AllPending final : public Pending {
 public:
  explicit AllPending(std::vector<Communicator::Started> all) : all_(std::move(all)) {}
  bool done() override {
    for (const Communicator::Started& one : all_)
      if (!one->done()) return false;
    return true;
  }
  void wait() override {
    for (const Communicator::Started& one : all_) one->wait();
  }
  std::string waits_for() override {
    for (const Communicator::Started& one : all_)
      if (!one->done()) return one->waits_for();
    return "";
  }

 private:
  std::vector<Communicator::Started> all_;
};

}  // namespace

ServerLinks::ServerLinks(Communicator& all, int workers, bool asynchronous)
    : workers_(workers), asynchronous_(asynchronous), own_(all.rank() < workers ? -1 : all.rank() - workers) {
  for (int server = 0; server < all.size() - workers; ++server)
    links_.push_back(all.split(
        [=](int r) { return Place{.color = r < workers || r == workers + server ? 0 : -1, .key = r}; }, "server"));
}

Communicator::Counts ServerLinks::counts(std::int64_t shard) const {
  Communicator::Counts counts(static_cast<std::size_t>(workers_), shard);
  counts.push_back(0);
  return counts;
}

void ServerLinks::push(const ConstTensor& flat, std::vector<Communicator::Started>& started) {
  const auto shard = flat.elements() / std::ssize(links_);
  for (std::int64_t server = 0; server < std::ssize(links_); ++server) {
    Communicator& link = *links_[static_cast<std::size_t>(server)];
    const ConstTensor part = flat.slice(0, server * shard, shard);
    started.push_back(served_ ? link.send(part, workers_) : link.gather({}, part, workers_, counts(shard)));
  }
}

Communicator::Started ServerLinks::receive(const Tensor& all) {
  if (served_) return own().recv(all, *served_);
  return own().gather(all, all.slice(0, 0, 0), workers_, counts(all.elements() / workers_));
}

Communicator::Started ServerLinks::pull(const Tensor& weights) {
  if (serves()) return served_ ? own().send(weights, *served_) : own().broadcast(weights, workers_);
  const auto shard = weights.elements() / std::ssize(links_);
  std::vector<Communicator::Started> started;
  for (std::int64_t server = 0; server < std::ssize(links_); ++server) {
    Communicator& link = *links_[static_cast<std::size_t>(server)];
    const Tensor part = weights.slice(0, server * shard, shard);
    started.push_back(served_ ? link.recv(part, workers_) : link.broadcast(part, workers_));
  }
  return std::make_unique<AllPending>(std::move(started));
}

}  // namespace lockstep
