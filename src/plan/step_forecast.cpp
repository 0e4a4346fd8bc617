#include "plan/step_forecast.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kGrain = 1 + 1e-12;  // ends that differ by rounding only count as one

struct SimulatedRank {
  enum class Does : std::uint8_t { nothing_yet, computes, waits, sleeps, wakes, has_ended };
  Does does = Does::nothing_yet;
  std::size_t next = 0;                 // of its pieces
  double left = 0;                      // seconds to compute
  double link_free = 0;                 // when its link has carried all that it started
  std::map<int, double> arrivals = {};  // by message: when its link will have carried it
  int awaited = -1;
  double waited = 0;
  std::array<double, 4> by_axis{};
  bool in_line = false, on_core = false;
  double turn = 0;  // that it has had of it
};

struct MessageState {
  enum class Is : std::uint8_t { gathering, moving, known_soon, over };
  Is is = Is::gathering;
  int started = 0, helpers = 0;
  double left = 0;     // seconds of one rank's work
  double known = 0;    // when those who wait know that it was moved
  double arrival = 0;  // one way: when the sender's link has carried it
};

class EventSimulator {
 public:
  explicit EventSimulator(const ForecastWorld& world)
      : world_(world), ranks_(world.ranks.size()), messages_(world.messages.size()), seen_(world.ranks.size()) {
    int channels = 0;
    for (const ForecastMessage& m : world.messages) channels = std::max(channels, m.channel + 1);
    queues_.resize(static_cast<std::size_t>(channels));
    turns_.resize(queues_.size());
    for (std::size_t m = 0; m < messages_.size(); ++m)
      queues_[static_cast<std::size_t>(world.messages[m].channel)].push_back(static_cast<int>(m));
  }

  std::vector<ForecastRank> run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) go_on(r);
    while (ended_ < ranks_.size()) {
      wake_who_may_go();
      share_cores();
      if (let_the_woken_go()) continue;
      const double step = until_next();
      LOCKSTEP_CHECK(step < kNever, "ranks wait for each other for ever");
      advance(step);
    }
    return std::move(seen_);
  }

 private:
  using Kind = ForecastPiece::Kind;
  MessageState& state(int message) { return messages_[static_cast<std::size_t>(message)]; }

  // Through all that takes no time.
  void go_on(std::size_t r) {
    SimulatedRank& rank = ranks_[r];
    const std::vector<ForecastPiece>& pieces = world_.ranks[r];
    rank.does = SimulatedRank::Does::nothing_yet;
    for (; rank.next < pieces.size(); ++rank.next) {
      const ForecastPiece& piece = pieces[rank.next];
      if (piece.kind == Kind::mark) seen_[r].marks.push_back({now_, rank.waited, rank.by_axis});
      if (piece.kind == Kind::start) {
        carry(rank, piece);
        start(piece.message);
      }
      if (piece.kind == Kind::compute && piece.seconds > 0) {
        rank.does = SimulatedRank::Does::computes;
        rank.left = piece.seconds;
      }
      if (piece.kind == Kind::wait) {
        rank.awaited = piece.message;
        if (state(piece.message).is != MessageState::Is::over)
          rank.does = SimulatedRank::Does::waits;
        else if (arrival(rank) > now_)
          rank.does = SimulatedRank::Does::sleeps;
      }
      if (rank.does != SimulatedRank::Does::nothing_yet) break;
    }
    if (rank.next++ < pieces.size()) return;
    rank.does = SimulatedRank::Does::has_ended;
    ++ended_;
  }

  // Its link takes what it starts.
  void carry(SimulatedRank& rank, const ForecastPiece& piece) {
    if (piece.link <= 0) return;
    rank.link_free = std::max(rank.link_free, now_) + piece.link;
    if (world_.messages[static_cast<std::size_t>(piece.message)].one_way)
      state(piece.message).arrival = rank.link_free;
    else
      rank.arrivals[piece.message] = rank.link_free;
  }
  // Of what it waits for.
  double arrival(const SimulatedRank& rank) {
    const auto own = rank.arrivals.find(rank.awaited);
    return own == rank.arrivals.end() ? state(rank.awaited).arrival : own->second;
  }

  void start(int message) {
    ++state(message).started;
    take_turn(world_.messages[static_cast<std::size_t>(message)].channel);
  }

  // The next message of a channel is moved when all its ranks are there.
  void take_turn(int channel) {
    const auto c = static_cast<std::size_t>(channel);
    if (turns_[c] == queues_[c].size()) return;
    const int message = queues_[c][turns_[c]];
    const ForecastMessage& m = world_.messages[static_cast<std::size_t>(message)];
    MessageState& s = state(message);
    if (s.is != MessageState::Is::gathering || s.started < m.ranks) return;
    s.is = MessageState::Is::moving;
    s.left = m.seconds;
    if (s.left > 0)
      moving_.push_back(message);
    else
      moved(message);
  }

  void moved(int message) {
    const ForecastMessage& m = world_.messages[static_cast<std::size_t>(message)];
    state(message).is = m.latency > 0 ? MessageState::Is::known_soon : MessageState::Is::over;
    state(message).known = now_ + m.latency;
    if (m.latency > 0) on_the_way_.push_back(message);
    ++turns_[static_cast<std::size_t>(m.channel)];
    take_turn(m.channel);
  }

  // A wait is over when the message has been moved, the link has carried it, and the rank has a core again.
  void wake_who_may_go() {
    for (SimulatedRank& rank : ranks_) {
      if (rank.does == SimulatedRank::Does::waits && state(rank.awaited).is == MessageState::Is::over)
        rank.does = SimulatedRank::Does::sleeps;
      if (rank.does == SimulatedRank::Does::sleeps && arrival(rank) <= now_ * kGrain) {
        rank.arrivals.erase(rank.awaited);
        rank.does = SimulatedRank::Does::wakes;
      }
    }
  }
  bool let_the_woken_go() {
    bool any = false;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r].does == SimulatedRank::Does::wakes && ranks_[r].on_core) {
        go_on(r);
        any = true;
      }
    return any;
  }

  // Which ranks are on a core now, and what each moves.
  void share_cores() {
    const auto wants = [&](const SimulatedRank& rank) {
      return rank.does == SimulatedRank::Does::computes || rank.does == SimulatedRank::Does::wakes ||
             (rank.does == SimulatedRank::Does::waits && !moving_.empty());
    };
    std::erase_if(line_, [&](std::size_t r) { return !(ranks_[r].in_line = wants(ranks_[r])); });
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (wants(ranks_[r]) && !std::exchange(ranks_[r].in_line, true)) {
        ranks_[r].turn = 0;
        line_.push_back(r);
      }
    for (SimulatedRank& rank : ranks_) rank.on_core = false;
    for (const int message : moving_) state(message).helpers = 0;
    int taken = 0;
    for (crowded_ = false; const std::size_t r : line_) {
      SimulatedRank& rank = ranks_[r];
      const bool computes = rank.does == SimulatedRank::Does::computes;
      const int needed = computes ? std::min(world_.threads, world_.cores) : 1;
      crowded_ = crowded_ || taken + needed > world_.cores;
      if (crowded_) continue;
      taken += needed;
      rank.on_core = true;
      if (rank.does != SimulatedRank::Does::waits) continue;
      const bool own = state(rank.awaited).is == MessageState::Is::moving;
      ++state(own ? rank.awaited : moving_.front()).helpers;
    }
  }

  double until_next() {
    double first = kNever;
    for (const SimulatedRank& rank : ranks_) {
      if (rank.does == SimulatedRank::Does::sleeps) first = std::min(first, arrival(rank) - now_);
      if (!rank.on_core) continue;
      if (rank.does == SimulatedRank::Does::computes) first = std::min(first, rank.left / speed());
      if (crowded_) first = std::min(first, world_.turn - rank.turn);
    }
    for (const int message : moving_)
      if (const MessageState& m = state(message); m.helpers > 0) first = std::min(first, m.left / m.helpers);
    for (const int message : on_the_way_) first = std::min(first, state(message).known - now_);
    return std::max(first, 0.0);
  }

  void advance(double step) {
    now_ += step;
    const double until = step * kGrain;
    std::vector<std::size_t> free;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      SimulatedRank& rank = ranks_[r];
      if (rank.does == SimulatedRank::Does::waits || rank.does == SimulatedRank::Does::sleeps ||
          rank.does == SimulatedRank::Does::wakes) {
        rank.waited += step;
        rank.by_axis[static_cast<std::size_t>(world_.messages[static_cast<std::size_t>(rank.awaited)].axis)] += step;
      }
      if (!rank.on_core) continue;
      rank.turn += step;
      if (rank.does != SimulatedRank::Does::computes) continue;
      if (rank.left / speed() <= until) free.push_back(r);
      rank.left -= step * speed();
    }
    if (crowded_)  // a rank that has had its turn goes to the end
      for (const std::size_t r :
           std::ranges::stable_partition(line_, [&](std::size_t r) { return ranks_[r].turn * kGrain < world_.turn; }))
        ranks_[r].turn = 0;
    move_messages(step);
    for (const std::size_t r : free) go_on(r);
  }

  void move_messages(double step) {
    const std::vector<int> moving = std::exchange(moving_, {}), on_the_way = std::exchange(on_the_way_, {});
    std::vector<int> ends;
    for (const int message : moving) {
      MessageState& m = state(message);
      (m.helpers > 0 && m.left / m.helpers <= step * kGrain ? ends : moving_).push_back(message);
      m.left -= step * m.helpers;
    }
    for (const int message : ends) moved(message);
    for (const int message : on_the_way)
      if (state(message).known <= now_ * kGrain)
        state(message).is = MessageState::Is::over;
      else
        on_the_way_.push_back(message);
  }

  // More threads than cores take longer in proportion.
  double speed() const { return std::min(1.0, static_cast<double>(world_.cores) / world_.threads); }

  const ForecastWorld& world_;
  std::vector<SimulatedRank> ranks_;
  std::vector<MessageState> messages_;
  std::vector<ForecastRank> seen_;
  std::vector<std::vector<int>> queues_;  // by channel: its messages
  std::vector<std::size_t> turns_;        // by channel: which of them is next
  std::vector<int> moving_, on_the_way_;
  std::vector<std::size_t> line_;  // ranks that want cores: the first of them have some
  bool crowded_ = false;           // not all of them
  double now_ = 0;
  std::size_t ended_ = 0;
};

}  // namespace

std::vector<ForecastRank> forecast(const ForecastWorld& world) { return EventSimulator(world).run(); }

}  // namespace lockstep
