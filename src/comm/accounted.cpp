#include "comm/accounted.h"

#include "comm/traffic.h"

namespace lockstep {

namespace {

class TimedPending final : public Pending {
 public:
  TimedPending(std::unique_ptr<Pending> inner, TimeAccount* time, TimeUse use)
      : inner_(std::move(inner)), time_(time), use_(use) {}

  bool done() override { return inner_->done(); }
  void wait() override {
    const Spending waiting(time_, use_);
    inner_->wait();
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Pending> inner_;
  TimeAccount* time_;
  TimeUse use_;
};

}  // namespace

Accounted::Accounted(Communicator& inner, CommAccount& account, const UseOf& use_of)
    : Communicator(inner.rank(), inner.size(), inner.name(), inner.device()),
      inner_(inner),
      account_(account),
      use_of_(use_of),
      use_(use_of(inner.name())) {}

Accounted::Accounted(std::unique_ptr<Communicator> inner, CommAccount& account, const UseOf& use_of)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      owned_(std::move(inner)),
      inner_(*owned_),
      account_(account),
      use_of_(use_of),
      use_(use_of(owned_->name())) {}

Communicator::Started Accounted::start(const Message& message) {
  check_message(message, rank(), size(), device());
  const DType dtype = dtype_of_message(message);
  if (const Traffic traffic = traffic_of(message, rank(), size()); traffic.sent > 0 || traffic.received > 0) {
    MessageCount& count = is_number(dtype, count_of(message, size()))
                              ? account_.numbers
                              : account_.tensors[static_cast<std::size_t>(use_)];
    ++count.calls;
    count.bytes_sent += traffic.sent * size_of(dtype);
  }
  return std::make_unique<TimedPending>(inner_.start(message), account_.time, use_);
}

std::unique_ptr<Communicator> Accounted::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_.split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Accounted>(std::move(part), account_, use_of_);
}

}  // namespace lockstep
