#include "comm/traced.h"

#include <chrono>
#include <numeric>

namespace lockstep {

namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class TracedPending final : public Pending {
 public:
  TracedPending(std::unique_ptr<Pending> inner, MessageTrace& trace, std::size_t number)
      : inner_(std::move(inner)), trace_(trace), number_(number) {}

  bool done() override {
    const bool is = inner_->done();
    if (is) trace_.end(number_);
    return is;
  }
  void wait() override {
    inner_->wait();
    trace_.end(number_);
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Pending> inner_;
  MessageTrace& trace_;
  std::size_t number_;
};

}  // namespace

void MessageTrace::start(std::function<double()> mark) {
  on_ = true;
  mark_ = std::move(mark);
}

std::vector<TracedMessage> MessageTrace::finish() {
  on_ = false;
  mark_ = {};
  return std::exchange(messages_, {});
}

double MessageTrace::now(bool marked) const { return marked ? mark_() : steady_seconds(); }

std::size_t MessageTrace::begin(TracedMessage message, Device device) {
  message.marked = mark_ && device != Device::cpu;
  message.step = step_;
  message.begin = now(message.marked);
  messages_.push_back(std::move(message));
  return messages_.size() - 1;
}

// One that ends after the trace is not noted: there is one trace in a run, and `number` none of another.
void MessageTrace::end(std::size_t number) {
  if (!on_) return;
  TracedMessage& message = messages_[number];
  if (message.end < 0) message.end = now(message.marked);
}

Traced::Traced(Communicator& inner, MessageTrace& trace, const std::string& key)
    : Communicator(inner.rank(), inner.size(), inner.name(), inner.device()),
      inner_(inner),
      trace_(trace),
      key_(key),
      members_(all_ranks(inner.size())) {}

Traced::Traced(std::unique_ptr<Communicator> inner, MessageTrace& trace, const std::string& key)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      owned_(std::move(inner)),
      inner_(*owned_),
      trace_(trace),
      key_(key),
      members_(all_ranks(owned_->size())) {}

Traced::Traced(std::unique_ptr<Communicator> inner, MessageTrace& trace, std::string key, std::vector<int> members)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      owned_(std::move(inner)),
      inner_(*owned_),
      trace_(trace),
      key_(std::move(key)),
      members_(std::move(members)) {}

Communicator::Started Traced::start(const Message& message) {
  if (!trace_.on() || size() == 1) return inner_.start(message);
  const bool has_peer = point_to_point(message.op) || has_root(message.op);
  const std::int64_t bytes =
      message.op == CommOp::barrier ? 0 : count_of(message, size()) * size_of(dtype_of_message(message));
  const std::size_t number = trace_.begin({.group = name(),
                                           .key = key_,
                                           .op = message.op,
                                           .number = sequence_.next(message),
                                           .ranks = size(),
                                           .peer = has_peer ? members_[static_cast<std::size_t>(message.peer)] : -1,
                                           .bytes = bytes},
                                          device());
  return std::make_unique<TracedPending>(inner_.start(message), trace_, number);
}

// All ranks of a group split it in the same order, so the number of the division is the same on all of them.
std::unique_ptr<Communicator> Traced::split(const std::function<Place(int)>& place, const std::string& name) {
  ++splits_;
  auto part = inner_.split(place, name);
  if (!part) return nullptr;
  std::vector<int> members;
  for (const int member : members_of(rank(), size(), place))
    members.push_back(members_[static_cast<std::size_t>(member)]);
  std::string key = fmt::format("{}/{}:{}", key_, splits_, members.front());
  return std::unique_ptr<Communicator>(new Traced(std::move(part), trace_, std::move(key), std::move(members)));
}

}  // namespace lockstep
