#include "comm/watchdog.h"

#include "comm/failure_text.h"
#include "comm/wait_policy.h"

namespace lockstep {

namespace {

class WatchedOperation final : public Pending {
 public:
  WatchedOperation(std::unique_ptr<Pending> inner, const CommLog& log, double deadline, std::string what, int rank)
      : inner_(std::move(inner)), log_(log), deadline_(deadline), what_(std::move(what)), rank_(rank) {}

  bool done() override { return inner_->done(); }
  std::string waits_for() override { return inner_->waits_for(); }

  void wait() override {
    const auto end = waiting::deadline_in(deadline_);
    auto backoff = waiting::wrapper_backoff();
    while (!inner_->done()) {
      if (waiting::Clock::now() >= end) {
        const std::string missing = inner_->waits_for();
        throw CommError(with_record(
            fmt::format("{} was not done{}{}{}", what_, within_text(deadline_), missing.empty() ? "" : "; ", missing)));
      }
      backoff.pause();
    }
    try {
      inner_->wait();
    } catch (const CommError& error) {
      throw CommError(with_record(error.what()), error.secondary());
    }
  }

 private:
  std::string with_record(const std::string& problem) const {
    return fmt::format("{}; the last of rank {}: {}", problem, rank_, log_.last_operations());
  }

  std::unique_ptr<Pending> inner_;
  const CommLog& log_;
  double deadline_;
  std::string what_;
  int rank_;
};

}  // namespace

Watchdog::Watchdog(std::unique_ptr<Communicator> inner, const CommLog& log, double deadline_seconds)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      inner_(std::move(inner)),
      log_(log),
      deadline_(deadline_seconds) {}

Communicator::Started Watchdog::start(const Message& message) {
  return std::make_unique<WatchedOperation>(inner_->start(message), log_,
                                            message.deadline > 0 ? message.deadline : deadline_,
                                            fmt::format("{} in '{}'", describe(message, size()), name()), rank());
}

std::unique_ptr<Communicator> Watchdog::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_->split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Watchdog>(std::move(part), log_, deadline_);
}

}  // namespace lockstep
