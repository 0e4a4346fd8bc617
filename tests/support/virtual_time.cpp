#include "support/virtual_time.h"

namespace lockstep::tests {

namespace {

// An operation and the time it brings with it, as two operations one behind the other.
class Timed final : public Pending {
 public:
  struct Stamp {
    std::unique_ptr<double> time;
    Communicator::Started pending;
  };
  Timed(Stamp stamp, Communicator::Started inner, FakeClock& clock, bool holds)
      : stamp_(std::move(stamp)), inner_(std::move(inner)), clock_(clock), holds_(holds) {}

  bool done() override { return stamp_.pending->done() && inner_->done(); }
  void wait() override {
    stamp_.pending->wait();
    inner_->wait();
    if (holds_) clock_.wait_until(*stamp_.time);
  }

 private:
  Stamp stamp_;
  Communicator::Started inner_;
  FakeClock& clock_;
  bool holds_;
};

}  // namespace

OnFakeClock::OnFakeClock(std::unique_ptr<Communicator> inner, FakeClock& clock)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      inner_(std::move(inner)),
      clock_(clock) {}

Communicator::Started OnFakeClock::start(const Message& message) {
  auto time = std::make_unique<double>(clock_.now());
  const Tensor told(time.get(), DType::f64, device(), {1});
  Timed::Stamp stamp{std::move(time), nullptr};
  if (message.op == CommOp::send) {
    *stamp.time += clock_.message_time();
    stamp.pending = inner_->send(told, message.peer);
  } else if (message.op == CommOp::recv) {
    stamp.pending = inner_->recv(told, message.peer);
  } else {
    stamp.pending = inner_->all_reduce(told, {.reduction = Reduction::max});
  }
  // A sender is not held by when what it sends arrives: it only learns that it was taken.
  return std::make_unique<Timed>(std::move(stamp), inner_->start(message), clock_, message.op != CommOp::send);
}

std::unique_ptr<Communicator> OnFakeClock::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_->split(place, name);
  if (!part) return nullptr;
  return std::make_unique<OnFakeClock>(std::move(part), clock_);
}

}  // namespace lockstep::tests
