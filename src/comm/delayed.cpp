#include "comm/delayed.h"

#include <algorithm>
#include <thread>

#include "comm/traffic.h"

namespace lockstep {

double SimulatedLink::seconds(const Message& message, int rank, int ranks) const {
  const Traffic t = traffic_of(message, rank, ranks);
  const std::int64_t bytes = std::max(t.sent, t.received) * size_of(dtype_of_message(message));
  return latency_ * static_cast<double>(t.steps) + static_cast<double>(bytes) / rate_;
}

SimulatedLink::Clock::time_point SimulatedLink::carry(double seconds) {
  return free_at_ = std::max(free_at_, Clock::now()) + waiting::seconds(seconds);
}

void SimulatedLink::waited_for(Clock::time_point arrival) {
  exposed_ += std::max(0.0, std::chrono::duration<double>(arrival - Clock::now()).count());
}

namespace {

class DelayedOperation final : public Pending {
 public:
  DelayedOperation(std::unique_ptr<Pending> inner, SimulatedLink& link, SimulatedLink::Clock::time_point at)
      : inner_(std::move(inner)), link_(link), at_(at) {}

  bool done() override { return inner_->done() && SimulatedLink::Clock::now() >= at_; }
  void wait() override {
    link_.waited_for(at_);
    inner_->wait();
    std::this_thread::sleep_until(at_);
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Pending> inner_;
  SimulatedLink& link_;
  SimulatedLink::Clock::time_point at_;
};

// When a tensor will have arrived: a message of its own, sent before the tensor.
struct ArrivalStamp {
  std::int64_t arrival = 0;  // in the clock's ticks
  Tensor tensor(Device device) { return Tensor(&arrival, DType::i64, device, {1}); }
};

class StampedOperation final : public Pending {
 public:
  StampedOperation(std::unique_ptr<ArrivalStamp> stamp, Communicator::Started stamped, Communicator::Started data,
                   SimulatedLink& link)
      : stamp_(std::move(stamp)), stamped_(std::move(stamped)), data_(std::move(data)), link_(link) {}

  bool done() override { return stamped_->done() && data_->done() && SimulatedLink::Clock::now() >= arrival(); }
  void wait() override {
    stamped_->wait();
    link_.waited_for(arrival());
    data_->wait();
    std::this_thread::sleep_until(arrival());
  }
  std::string waits_for() override { return stamped_->done() ? data_->waits_for() : stamped_->waits_for(); }

 private:
  SimulatedLink::Clock::time_point arrival() const {
    return SimulatedLink::Clock::time_point(SimulatedLink::Clock::duration(stamp_->arrival));
  }

  std::unique_ptr<ArrivalStamp> stamp_;
  Communicator::Started stamped_, data_;
  SimulatedLink& link_;
};

}  // namespace

Delayed::Delayed(std::unique_ptr<Communicator> inner, SimulatedLink& link)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      inner_(std::move(inner)),
      link_(link) {}

Communicator::Started Delayed::start(const Message& message) {
  check_message(message, rank(), size(), device());
  if (point_to_point(message.op)) {
    LOCKSTEP_CHECK(device() != Device::cuda, "slow links are of hosts");
    auto stamp = std::make_unique<ArrivalStamp>();
    const Tensor told = stamp->tensor(device());
    const bool sends = message.op == CommOp::send;
    if (sends) stamp->arrival = link_.carry(link_.seconds(message, rank(), size())).time_since_epoch().count();
    auto stamped = sends ? inner_->send(told, message.peer) : inner_->recv(told, message.peer);
    return std::make_unique<StampedOperation>(std::move(stamp), std::move(stamped), inner_->start(message), link_);
  }
  const auto at = link_.carry(link_.seconds(message, rank(), size()));
  return std::make_unique<DelayedOperation>(inner_->start(message), link_, at);
}

std::unique_ptr<Communicator> Delayed::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_->split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Delayed>(std::move(part), link_);
}

}  // namespace lockstep
