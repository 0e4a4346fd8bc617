#include "comm/accounted.h"

#include <mutex>
#include <set>

#include "comm/traffic.h"

namespace lockstep {

namespace {

// Text that stays, for those who read it from another thread at any time. There are a dozen names of groups.
const char* lasting(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> all;
  const std::lock_guard lock(mutex);
  return all.insert(text).first->c_str();
}

class TimedPending final : public Pending {
 public:
  struct Call {
    const char *group, *op;
    std::int64_t number;
  };
  TimedPending(std::unique_ptr<Pending> inner, const CommAccount& account, TimeUse use, const Call& call)
      : inner_(std::move(inner)), account_(account), use_(use), call_(call) {}

  bool done() override { return inner_->done(); }
  void wait() override {
    const Spending waiting(account_.time, use_);
    const InCall held(account_.doing, call_.group, call_.op, call_.number);
    inner_->wait();
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Pending> inner_;
  const CommAccount& account_;
  TimeUse use_;
  Call call_;
};

}  // namespace

Accounted::Accounted(Communicator& inner, CommAccount& account, const UseOf& use_of)
    : Communicator(inner.rank(), inner.size(), inner.name(), inner.device()),
      inner_(inner),
      account_(account),
      use_of_(use_of),
      use_(use_of(inner.name())),
      group_(lasting(inner.name())) {}

Accounted::Accounted(std::unique_ptr<Communicator> inner, CommAccount& account, const UseOf& use_of)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      owned_(std::move(inner)),
      inner_(*owned_),
      account_(account),
      use_of_(use_of),
      use_(use_of(owned_->name())),
      group_(lasting(owned_->name())) {}

Communicator::Started Accounted::start(const Message& message) {
  if (account_.paused) return inner_.start(message);
  check_message(message, rank(), size(), device());
  const DType dtype = dtype_of_message(message);
  if (const Traffic traffic = traffic_of(message, rank(), size()); traffic.sent > 0 || traffic.received > 0) {
    MessageCount& count = is_number(dtype, count_of(message, size()))
                              ? account_.numbers
                              : account_.tensors[static_cast<std::size_t>(use_)];
    ++count.calls;
    count.bytes_sent += traffic.sent * size_of(dtype);
  }
  const TimedPending::Call call{group_, name_of(message.op).data(), static_cast<std::int64_t>(sequence_.next(message))};
  return std::make_unique<TimedPending>(inner_.start(message), account_, use_, call);
}

std::unique_ptr<Communicator> Accounted::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_.split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Accounted>(std::move(part), account_, use_of_);
}

}  // namespace lockstep
