#include "comm/watchdog.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

class Watched final : public Pending {
 public:
  Watched(std::unique_ptr<Pending> inner, const CommLog& log, double deadline, std::string what, int rank)
      : inner_(std::move(inner)), log_(log), deadline_(deadline), what_(std::move(what)), rank_(rank) {}

  bool done() override { return inner_->done(); }
  std::string waits_for() override { return inner_->waits_for(); }

  void wait() override {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(deadline_));
    Seconds pause(5e-6);
    while (!inner_->done()) {
      if (Clock::now() >= end) {
        const std::string missing = inner_->waits_for();
        throw CommError(with_record(
            fmt::format("{} was not done within {} s{}{}", what_, deadline_, missing.empty() ? "" : "; ", missing)));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 1.5, Seconds(1e-3));
    }
    try {
      inner_->wait();
    } catch (const CommError& error) {
      throw CommError(with_record(error.what()), error.secondary());
    }
  }

 private:
  std::string with_record(const std::string& problem) const {
    return fmt::format("{}; the last of rank {}: {}", problem, rank_, log_.last_words());
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
  return std::make_unique<Watched>(inner_->start(message), log_, message.deadline > 0 ? message.deadline : deadline_,
                                   fmt::format("{} in '{}'", describe(message, size()), name()), rank());
}

std::unique_ptr<Communicator> Watchdog::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_->split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Watchdog>(std::move(part), log_, deadline_);
}

}  // namespace lockstep
