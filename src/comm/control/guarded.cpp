#include "comm/control/guarded.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "comm/failure_text.h"

namespace lockstep {

namespace {

using control::Record;
using control::Session;

constexpr double kMoment = 0.25;  // in which the session may tell why the backend failed

class GuardedOperation final : public Pending {
 public:
  // What is the communicator's, for all its operations.
  struct Context {
    Session& session;
    double deadline;
    const std::string& name;
    int size;
  };

  GuardedOperation(std::unique_ptr<Pending> inner, const Context& context, Record record)
      : inner_(std::move(inner)),
        session_(context.session),
        seconds_(context.deadline),
        deadline_(context.deadline),
        name_(context.name),
        size_(context.size),
        record_(std::move(record)) {}

  ~GuardedOperation() override {
    if (over_ || session_.failed() || std::uncaught_exceptions() > 0) return;
    try {
      if (!inner_->done()) session_.fail_all(went_away_text(session_.rank(), what()));
    } catch (const std::exception&) {  // the backend fails: its next wait tells
    }
  }

  bool done() override {
    if (over_ || session_.failed() || inner_->done()) return true;
    if (!deadline_.passed()) return false;
    fail_late();
    return true;
  }

  void wait() override {
    auto backoff = waiting::wrapper_backoff();
    try {
      while (!done()) backoff.pause();
      over_ = true;
      session_.check();
      inner_->wait();
    } catch (const EnvironmentError& error) {
      over_ = true;
      if (session_.fails_within(kMoment)) session_.check();
      session_.fail(error.what());
      throw;
    }
    record_.done = true;
    session_.report(std::move(record_));
  }

  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::string what() const { return operation_title(record_.sequence, name_, message_of(record_, size_), size_) + ","; }

  void fail_late() {
    std::string who;
    try {
      who = session_.whereabouts(record_);
    } catch (const CommError& error) {
      who = error.what();
    }
    session_.fail_all(fmt::format("{} was not done{}: {}", what(), within_text(seconds_), who));
  }

  std::unique_ptr<Pending> inner_;
  Session& session_;
  double seconds_;
  waiting::Deadline deadline_;
  std::string name_;
  int size_;
  Record record_;
  bool over_ = false;
};

std::vector<int> all_of(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Guarded::Guarded(std::unique_ptr<Communicator> inner, Session& session, double deadline_seconds)
    : Guarded(std::move(inner), session, deadline_seconds, session.next_world_key(), all_of(session.size())) {
  LOCKSTEP_CHECK(rank() == session.rank() && size() == session.size(),
                 "a communicator of rank {} of {} with a session of rank {} of {}", rank(), size(), session.rank(),
                 session.size());
}

Guarded::Guarded(std::unique_ptr<Communicator> inner, Session& session, double deadline_seconds, std::string key,
                 std::vector<int> members)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      inner_(std::move(inner)),
      session_(session),
      deadline_(deadline_seconds),
      key_(std::move(key)),
      members_(std::move(members)) {
  if (size() > 1) group_ = session_.open_group(key_, name(), members_);
}

Guarded::~Guarded() {
  if (size() > 1 && std::uncaught_exceptions() == 0) session_.close_group(group_);
}

Communicator::Started Guarded::start(const Message& message) {
  check_message(message, rank(), size(), device());
  if (size() == 1) return inner_->start(message);
  session_.check();
  Record record{.group = group_,
                .sequence = sequence_.next(message),
                .op = message.op,
                .dtype = message.op == CommOp::barrier ? DType::f32 : dtype_of_message(message),
                .reduction = message.reduction,
                .algorithm = message.algorithm,
                .peer = has_root(message.op) || point_to_point(message.op) ? message.peer : 0,
                .count = count_of(message, size()),
                .counts = message.counts};
  session_.report(record);
  return std::make_unique<GuardedOperation>(
      inner_->start(message),
      GuardedOperation::Context{session_, message.deadline > 0 ? message.deadline : deadline_, name(), size()},
      std::move(record));
}

std::unique_ptr<Communicator> Guarded::split(const std::function<Place(int)>& place, const std::string& name) {
  session_.check();
  auto part = inner_->split(place, name);
  ++divisions_;
  if (!part) return nullptr;
  std::vector<int> members = members_of(rank(), size(), place);
  for (int& member : members) member = members_[static_cast<std::size_t>(member)];
  return std::unique_ptr<Communicator>(new Guarded(std::move(part), session_, deadline_,
                                                   fmt::format("{}/{}:{}", key_, divisions_, place(rank()).color),
                                                   std::move(members)));
}

}  // namespace lockstep
