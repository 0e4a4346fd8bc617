#include "train/run_clock.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>

#include "comm/gather_texts.h"
#include "telemetry/step_record.h"

namespace lockstep {

double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Containers of one machine share its kernel, and its clock.
std::string host_of_clock() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (!boot.empty()) return boot;
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

namespace {

constexpr int kLineWords = 5;
constexpr int kResultWords = 2 * kLineWords + 2;

std::array<double, kLineWords> clock_words_of(const ClockLine& line) {
  return {line.at, line.offset, line.drift, line.error, line.residual};
}
ClockLine clock_line_of(const double* words) { return {words[0], words[1], words[2], words[3], words[4]}; }

}  // namespace

RunClock::RunClock(Communicator* ranks, const Options& options) : options_(options), ranks_(ranks) {
  epoch_ = seconds_since_1970() - now();
  if (!ranks_ || ranks_->size() == 1 || options_.scope == ClockScope::off) return;
  if (options_.scope == ClockScope::local) {
    find_hosts();
    return;
  }
  clocks_ = ranks_->size();
  leaders_ = ranks_;
  for (int rank = 0; rank < clocks_; ++rank) leader_ranks_.push_back(rank);
  estimates_.resize(leader_ranks_.size());
}

void RunClock::find_hosts() {
  const std::vector<std::string> hosts = gather_texts(*ranks_, options_.host);
  std::vector<int> host_of(hosts.size());  // by rank: in the order of their first ranks
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto first = static_cast<std::size_t>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
    host_of[rank] = first == rank ? static_cast<int>(leader_ranks_.size()) : host_of[first];
    if (first == rank) leader_ranks_.push_back(static_cast<int>(rank));
  }
  clocks_ = static_cast<int>(leader_ranks_.size());
  if (clocks_ == 1) return;
  const auto leads = [&](int rank) {
    return leader_ranks_[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])] == rank;
  };
  own_leaders_ = ranks_->split([&](int rank) { return Place{leads(rank) ? 0 : -1, rank}; }, "clocks of hosts");
  host_ = ranks_->split(
      [&](int rank) {
        return Place{host_of[static_cast<std::size_t>(rank)], rank};
      },
      "clock of a host");
  leaders_ = own_leaders_.get();
  estimates_.resize(leader_ranks_.size());
}

RoundTrip RunClock::exchange(int other) {
  RoundTrip trip;
  const auto send = [&](double value, int to) {
    leaders_->send(ConstTensor(&value, DType::f64, leaders_->device(), {1}), to)->wait();
  };
  const auto receive = [&](double& value, int from) {
    leaders_->recv(Tensor(&value, DType::f64, leaders_->device(), {1}), from)->wait();
  };
  if (leaders_->rank() == 0) {
    trip.sent = now();
    send(trip.sent, other);
    receive(trip.theirs, other);
    trip.received = now();
  } else {
    receive(trip.sent, 0);
    send(now(), 0);
  }
  return trip;
}

// One after the other, so that nobody waits for another's exchange.
void RunClock::compare() {
  if (!compares()) return;
  if (leaders_) {
    for (int other = 1; other < clocks_; ++other) {
      if (leaders_->rank() != 0 && leaders_->rank() != other) continue;
      std::array<RoundTrip, kRoundTrips> trips;
      for (RoundTrip& trip : trips) trip = exchange(other);
      if (leaders_->rank() == 0) estimates_[static_cast<std::size_t>(other)].compare(trips);
    }
    if (leaders_->rank() == 0) {
      std::vector<ClockLine> lines;
      for (const ClockEstimate& estimate : estimates_) lines.push_back(estimate.line());
      const bool first = all_.empty();
      all_ = mean_clocks(lines);
      clock_ = all_.front();
      if (first) epoch_ = seconds_since_1970() - of(now());
    }
  }
  hand_out(all_);
  fresh_error_ = clock_.error(now());
}

void RunClock::hand_out(const std::vector<MeanClock>& results) {
  std::vector<double> all;
  for (const MeanClock& clock : results) {
    std::ranges::copy(clock_words_of(clock.own), std::back_inserter(all));
    std::ranges::copy(clock_words_of(clock.mean), std::back_inserter(all));
    all.push_back(clock.share);
    all.push_back(epoch_);
  }
  std::array<double, kResultWords> mine{};
  const Tensor own(mine.data(), DType::f64, ranks_->device(), {kResultWords});
  if (leaders_)
    leaders_
        ->scatter(
            own, all.empty() ? ConstTensor() : ConstTensor(all.data(), DType::f64, ranks_->device(), {std::ssize(all)}),
            0)
        ->wait();
  if (host_) host_->broadcast(own, 0)->wait();
  clock_ = {.own = clock_line_of(mine.data()),
            .mean = clock_line_of(mine.data() + kLineWords),
            .share = mine[2 * kLineWords]};
  epoch_ = mine[2 * kLineWords + 1];
}

double RunClock::of(double reading) const {
  if (options_.scope == ClockScope::off) return reading + epoch_;  // hosts that keep time are not far apart
  return compares() ? clock_.reading_of_mean(reading) : reading;
}

double RunClock::since_1970(double of_run) const {
  return options_.scope == ClockScope::off ? of_run : of_run + epoch_;
}

std::optional<double> RunClock::error(double reading) const {
  if (options_.scope == ClockScope::off) return std::nullopt;
  return compares() ? clock_.error(reading) : 0;
}

bool RunClock::would_pass(double most, double seconds) const {
  return compares() && clock_.error(now() + seconds) > std::max(most, 2 * fresh_error_);
}

std::vector<RunClock::Compared> RunClock::compared() const {
  std::vector<Compared> found;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    // Its reading now, as the first rank knows it.
    const double reading = now() + all_[i].own.offset_at(now());
    found.push_back({leader_ranks_[i], all_[i].offset(reading), all_[i].drift(), all_[i].error(reading)});
  }
  return found;
}

}  // namespace lockstep
