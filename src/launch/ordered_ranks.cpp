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
  if (!ended.ends.empty()) never_ran_.push_back(std::move(ended));
}

void OrderedRanks::take_back(int code, bool killed) {
  if (const auto order = std::exchange(waiting_, std::nullopt)) end_all_of(*order, code, killed);
  for (const EpochOrder& order : std::exchange(after_, {})) end_all_of(order, code, killed);
}

// Killed before they were started: else they would start without those that they were ordered with.
void OrderedRanks::take_back(EpochOrder& order, const std::set<int>& ranks) {
  EpochOrder taken = order;
  std::erase_if(taken.places, [&](const EpochOrder::Place& place) { return !ranks.contains(place.rank); });
  std::erase_if(order.places, [&](const EpochOrder::Place& place) { return ranks.contains(place.rank); });
  end_all_of(taken, 128 + SIGKILL, true);
}

void OrderedRanks::ask_to_end() {
  take_back(0, false);
  ranks_.ask_to_end();
}

void OrderedRanks::kill(const std::set<int>& ranks) {
  if (ranks.empty()) {
    take_back(128 + SIGKILL, true);
  } else {
    // An order that has lost all of its places is kept: it still ends the epoch before, and those after it wait for it.
    if (waiting_) take_back(*waiting_, ranks);
    for (EpochOrder& order : after_) take_back(order, ranks);
  }
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
