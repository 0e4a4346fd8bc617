#include "comm/delayed.h"

#include <algorithm>
#include <thread>

#include "comm/traffic.h"

namespace lockstep {

double Link::seconds(const Message& message, int rank, int ranks) const {
  const Traffic t = traffic_of(message, rank, ranks);
  const std::int64_t bytes = std::max(t.sent, t.received) * size_of(dtype_of_message(message));
  return latency_ * static_cast<double>(t.steps) + static_cast<double>(bytes) / rate_;
}

Link::Clock::time_point Link::carry(double seconds) {
  const auto time = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return free_at_ = std::max(free_at_, Clock::now()) + time;
}

void Link::waited_for(Clock::time_point arrival) {
  exposed_ += std::max(0.0, std::chrono::duration<double>(arrival - Clock::now()).count());
}

namespace {

class Arriving final : public Pending {
 public:
  Arriving(std::unique_ptr<Pending> inner, Link& link, Link::Clock::time_point at)
      : inner_(std::move(inner)), link_(link), at_(at) {}

  bool done() override { return inner_->done() && Link::Clock::now() >= at_; }
  void wait() override {
    link_.waited_for(at_);
    inner_->wait();
    std::this_thread::sleep_until(at_);
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Pending> inner_;
  Link& link_;
  Link::Clock::time_point at_;
};

}  // namespace

Delayed::Delayed(std::unique_ptr<Communicator> inner, Link& link)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      inner_(std::move(inner)),
      link_(link) {}

Communicator::Started Delayed::start(const Message& message) {
  check_message(message, rank(), size(), device());
  const auto at = link_.carry(link_.seconds(message, rank(), size()));
  return std::make_unique<Arriving>(inner_->start(message), link_, at);
}

std::unique_ptr<Communicator> Delayed::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_->split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Delayed>(std::move(part), link_);
}

}  // namespace lockstep
