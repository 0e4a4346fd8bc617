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
  // `under_way`: none of what is not timed.
  TimedPending(std::unique_ptr<Pending> inner, const CommAccount& account, TimeUse use, const Call& call,
               TimeUnderWay* under_way)
      : inner_(std::move(inner)), account_(account), use_(use), call_(call), under_way_(under_way) {}
  ~TimedPending() override { end(); }

  bool done() override {
    const bool is = inner_->done();
    if (is) end();
    return is;
  }
  void wait() override {
    const Spending waiting(account_.time, use_);
    const InCall held(account_.doing, call_.group, call_.op, call_.number);
    inner_->wait();
    end();
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  void end() {
    if (TimeUnderWay* const ends = std::exchange(under_way_, nullptr)) ends->end();
  }

  std::unique_ptr<Pending> inner_;
  const CommAccount& account_;
  TimeUse use_;
  Call call_;
  TimeUnderWay* under_way_;
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
  TimeUnderWay* under_way = nullptr;
  if (const Traffic traffic = traffic_of(message, rank(), size()); traffic.sent > 0 || traffic.received > 0) {
    const bool number = is_number(dtype, count_of(message, size()));
    MessageCount& count = number ? account_.numbers : account_.tensors[static_cast<std::size_t>(use_)];
    ++count.calls;
    count.bytes_sent += traffic.sent * size_of(dtype);
    if (!number && account_.time && account_.times_messages)
      under_way = &account_.under_way[static_cast<std::size_t>(use_)];
  }
  const TimedPending::Call call{group_, name_of(message.op).data(), static_cast<std::int64_t>(sequence_.next(message))};
  auto started = inner_.start(message);
  if (under_way) under_way->begin();
  return std::make_unique<TimedPending>(std::move(started), account_, use_, call, under_way);
}

std::unique_ptr<Communicator> Accounted::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_.split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Accounted>(std::move(part), account_, use_of_);
}

}  // namespace lockstep
