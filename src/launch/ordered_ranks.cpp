#include "launch/ordered_ranks.h"

#include <csignal>
#include <exception>
#include <utility>

#include "base/error.h"

namespace lockstep {

void OrderedRanks::start(const EpochOrder& order) {
  if (order.joins && waiting_) return after_.push_back(order);
  if (order.joins || !exchange_ || !order.resumes) return start_now(order);
  after_.clear();
  waiting_ = order;
  asked_ = false;
}

void OrderedRanks::start_now(const EpochOrder& order) {
  try {
    ranks_.start(order, command_);
  } catch (const std::exception& error) {
    tell_(error.what());
    end_all_of(order, static_cast<int>(ExitCode::environment), false);
  }
}

void OrderedRanks::end_all_of(const EpochOrder& order, int code, bool killed) {
  Ended ended{.epoch = order.epoch};
  for (const EpochOrder::Place& place : order.places)
    ended.ends.push_back({.rank = place.rank, .code = code, .killed = killed});
  never_ran_.push_back(std::move(ended));
}

void OrderedRanks::take_back(int code, bool killed) {
  if (const auto order = std::exchange(waiting_, std::nullopt)) end_all_of(*order, code, killed);
  for (const EpochOrder& order : std::exchange(after_, {})) end_all_of(order, code, killed);
}

void OrderedRanks::ask_to_end() {
  take_back(0, false);
  ranks_.ask_to_end();
}

void OrderedRanks::kill(const std::set<int>& ranks) {
  if (ranks.empty()) take_back(128 + SIGKILL, true);
  ranks_.kill(ranks);
}

std::vector<OrderedRanks::Ended> OrderedRanks::look() {
  if (waiting_ && !exchange_->bringing()) {
    if (!std::exchange(asked_, true)) {
      exchange_->bring();
    } else {
      start_now(*std::exchange(waiting_, std::nullopt));
      for (const EpochOrder& order : std::exchange(after_, {})) start_now(order);
    }
  }
  std::vector<Ended> all;
  if (std::vector<RankEnd> ends = ranks_.look(); !ends.empty()) all.push_back({ranks_.epoch(), std::move(ends)});
  for (Ended& ended : std::exchange(never_ran_, {})) all.push_back(std::move(ended));
  return all;
}

}  // namespace lockstep
