#include "plan/device_clock.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <tuple>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {

namespace {

using PieceKind = StagePiece::Kind;

std::size_t at(MeshAxis axis) { return static_cast<std::size_t>(axis); }

// Lanes are stages of kinds of replicas. A message is live from when the first lane starts it until it is over and the
// last lane that started it has waited for it.
struct LiveMessage {
  enum class State : std::uint8_t { gathering, moving, ending, over };
  State state = State::gathering;
  int shape = -1, channel = -1;
  int needed = 1, arrived = 0, unwaited = 0;
  double left = 0, rate = 0, since = 0;  // seconds of transfer with the links to itself; share of them
  int version = 0;
  std::uint64_t looked_at = 0;  // the last time that links were shared out
  std::vector<int> lanes = {}, waiting = {};
};

struct LiveChannel {
  std::vector<int> queue;  // message slots by sequence, from `first` on; -1: over and recycled
  std::size_t next = 0;    // the one that may move
};

struct Lane {
  const StageScript* script = nullptr;
  int kind = 0, stage = 0;
  int server = -1;  // of the stage
  double slowness = 1;
  std::size_t piece = 0;
  enum class Does : std::uint8_t { nothing, computes, waits, has_ended } does = Does::nothing;
  double left = 0, speed = 1, since = 0, wait_began = 0, action_began = 0;
  int version = 0, awaited = -1;
  std::vector<int> numbers = {};                          // message slots by number
  std::vector<int> active = {};                           // messages of it that move
  std::array<std::array<double, 2>, kLinkLevels> uses{};  // by level and direction, out and in: what they would take
  std::vector<int> channels = {};                         // by shape of a message, where it starts such
  std::vector<std::pair<int, std::size_t>> calls = {};    // by channel: how many it has made; there are few
  StageTimes times = {};
  bool counts = false;  // the second step has begun
};

struct ClockEvent {
  double time;
  std::uint64_t order;
  int id, version;
  bool of_message;
  bool operator>(const ClockEvent& other) const { return std::tie(time, order) > std::tie(other.time, other.order); }
};

class DeviceClock {
 public:
  DeviceClock(const WorldScript& script, const MachineSpec& machine, const ClockOptions& options)
      : script_(script), machine_(machine), options_(options) {
    for (const StageMessage& m : script.messages) prices_.push_back(price_of(m, machine));
    for (const PhaseScript& p : script.phases)
      phases_.push_back(time_of(p, prices_, script.messages, machine.overlap_slowdown));
    kinds_ = std::max<std::size_t>(1, options.replicas.size());
    stages_ = script.stages.size();
    for (std::size_t kind = 0; kind < kinds_; ++kind)
      for (std::size_t s = 0; s < stages_; ++s) {
        Lane lane{.script = &script.stages[s], .kind = static_cast<int>(kind), .stage = static_cast<int>(s)};
        if (!options.replicas.empty()) lane.slowness = options.replicas[kind][s];
        add(std::move(lane));
      }
    for (int server = 0; server < script.servers_each; ++server)
      for (std::size_t s = 0; s < stages_; ++s)
        add({.script = &script.servers[s],
             .kind = static_cast<int>(kinds_) + server,
             .stage = static_cast<int>(s),
             .server = server});
  }

  std::vector<std::vector<StageTimes>> run() {
    for (std::size_t l = 0; l < lanes_.size(); ++l) go_on(static_cast<int>(l));
    while (!events_.empty()) {
      const ClockEvent event = events_.top();
      events_.pop();
      if (event.of_message ? message(event.id).version != event.version : lane(event.id).version != event.version)
        continue;
      now_ = event.time;
      if (event.of_message)
        ends(event.id);
      else
        go_on(event.id);
    }
    std::vector<std::vector<StageTimes>> all(kinds_ + static_cast<std::size_t>(script_.servers_each));
    for (Lane& l : lanes_) {
      LOCKSTEP_CHECK(l.does == Lane::Does::has_ended, "stage {} waits for ever", l.stage);
      all[static_cast<std::size_t>(l.kind)].push_back(std::move(l.times));
    }
    return all;
  }

 private:
  void add(Lane lane) {
    lane.numbers.assign(static_cast<std::size_t>(lane.script->messages), -1);
    lane.channels.assign(script_.messages.size(), -1);
    lanes_.push_back(std::move(lane));
  }
  Lane& lane(int id) { return lanes_[static_cast<std::size_t>(id)]; }
  LiveMessage& message(int id) { return messages_[static_cast<std::size_t>(id)]; }
  const StageMessage& shape_of(const LiveMessage& m) const {
    return script_.messages[static_cast<std::size_t>(m.shape)];
  }

  // Through all that takes no time, to what does.
  void go_on(int id) {
    Lane& l = lane(id);
    const std::vector<StagePiece>& pieces = l.script->pieces;
    for (l.does = Lane::Does::nothing; l.piece < pieces.size();) {
      const StagePiece& piece = pieces[l.piece++];
      switch (piece.kind) {
        case PieceKind::work:
          if (l.counts) l.times.computed += piece.seconds * l.slowness;
          computes(id, piece.seconds * l.slowness);
          break;
        case PieceKind::phase:
          runs_phase(id, phases_[static_cast<std::size_t>(piece.index)]);
          break;
        case PieceKind::start:
          starts(id, piece);
          break;
        case PieceKind::wait:
          waits(id, piece.number);
          break;
        case PieceKind::action_runs:
          l.action_began = now_;
          break;
        case PieceKind::action_done:
          if (options_.spans && l.counts)
            l.times.spans.push_back({static_cast<std::size_t>(piece.action), l.action_began, now_});
          break;
        case PieceKind::step_begins:
          l.counts = l.piece > 1;
          computes(id, machine_.step);
          break;
        case PieceKind::step_ends:
          if (!l.counts) l.times.begin = now_;
          l.times.end = now_;
          break;
      }
      if (l.does != Lane::Does::nothing) return;
    }
    l.does = Lane::Does::has_ended;
  }

  void runs_phase(int id, const PhaseTime& phase) {
    Lane& l = lane(id);
    double computed = phase.computed * l.slowness;
    if (options_.jitter > 0) computed *= jitter(id, l.piece);
    if (l.counts) {
      l.times.computed += computed;
      for (std::size_t a = 0; a < phase.waited.size(); ++a) l.times.waited[a] += phase.waited[a];
    }
    computes(id, computed + phase.seconds() - phase.computed);
  }

  // A factor whose logarithm is normal, of mean 1, keyed on the lane and the place in its list.
  double jitter(int id, std::size_t piece) const {
    const double s = options_.jitter;
    return std::exp(s * normal_at(options_.seed, static_cast<std::uint64_t>(id), piece) - s * s / 2);
  }
  static double normal_at(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
    const std::uint64_t key = seed * 0x9E3779B97F4A7C15u + a;
    const auto word = philox(key, b);
    const double u = (word[0] + 0.5) * 0x1p-32, v = (word[1] + 0.5) * 0x1p-32;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

  void computes(int id, double seconds) {
    if (seconds <= 0) return;
    Lane& l = lane(id);
    l.does = Lane::Does::computes;
    l.left = seconds;
    l.since = now_;
    l.speed = speed_of(l);
    schedule(id, false, now_ + l.left / l.speed, ++l.version);
  }
  double speed_of(const Lane& l) const { return l.active.empty() ? 1 : 1 / (1 + machine_.overlap_slowdown); }

  void change_speed(int id) {
    Lane& l = lane(id);
    if (l.does != Lane::Does::computes || l.speed == speed_of(l)) return;
    l.left = std::max(0.0, l.left - (now_ - l.since) * l.speed);
    l.since = now_;
    l.speed = speed_of(l);
    schedule(id, false, now_ + l.left / l.speed, ++l.version);
  }

  // Which lanes take part in a message, as a channel's key: those of one lane, of a kind of replica, of a stage, all.
  using ChannelKey = std::tuple<int, int, int, int, int>;
  ChannelKey channel_key(const Lane& l, const StageMessage& m) const {
    if (m.peer >= 0)
      return m.op == CommOp::send ? ChannelKey{0, l.kind, l.stage, m.peer, 0}
                                  : ChannelKey{0, l.kind, m.peer, l.stage, 0};
    const int axis = static_cast<int>(m.group.axis);
    if (m.group.axis == MeshAxis::pp) return {1, l.kind, axis, m.group.ranks, 0};
    if (m.among == StageMessage::Among::link) return {4, l.stage, axis, l.server >= 0 ? l.server : m.server, 0};
    if (m.group.axis == MeshAxis::dp && m.among != StageMessage::Among::computing)
      return {5, l.stage, axis, m.group.ranks, static_cast<int>(m.among)};
    if (m.group.axis == MeshAxis::dp) return {2, l.stage, axis, m.group.ranks, m.group.nodes};
    return {3, l.kind, l.stage, axis, m.group.ranks * 2 + point_to_point(m.op)};
  }
  int needed(const StageMessage& m) const {
    if (m.peer >= 0) return 2;
    if (m.group.axis == MeshAxis::pp) return static_cast<int>(stages_);
    const int kinds = static_cast<int>(kinds_);
    switch (m.among) {
      case StageMessage::Among::link:
        return kinds + 1;
      case StageMessage::Among::servers:
        return script_.servers_each;
      case StageMessage::Among::all:
        return kinds + script_.servers_each;
      case StageMessage::Among::computing:
        break;
    }
    if (m.group.axis == MeshAxis::dp) return kinds;
    return 1;
  }

  // `known`: the lane's note of it.
  int channel_of(Lane& l, const StageMessage& shape, int& known) {
    if (known >= 0) return known;
    const auto [place, fresh] = channel_ids_.try_emplace(channel_key(l, shape), static_cast<int>(channels_.size()));
    if (fresh) channels_.emplace_back();
    known = place->second;
    if (std::ranges::find(l.calls, known, &std::pair<int, std::size_t>::first) == l.calls.end())
      l.calls.emplace_back(known, 0);
    return known;
  }

  void starts(int id, const StagePiece& piece) {
    Lane& l = lane(id);
    const StageMessage& shape = script_.messages[static_cast<std::size_t>(piece.index)];
    const int channel = channel_of(l, shape, l.channels[static_cast<std::size_t>(piece.index)]);
    LiveChannel& c = channels_[static_cast<std::size_t>(channel)];
    const std::size_t call = std::ranges::find(l.calls, channel, &std::pair<int, std::size_t>::first)->second++;
    if (call == c.queue.size()) c.queue.push_back(new_message(piece.index, channel));
    const int m = c.queue[call];
    l.numbers[static_cast<std::size_t>(piece.number)] = m;
    LiveMessage& live = message(m);
    live.lanes.push_back(id);
    ++live.unwaited;
    if (++live.arrived == live.needed) take_turn(channel);
  }

  int new_message(int shape, int channel) {
    int slot = static_cast<int>(messages_.size());
    if (free_.empty()) {
      messages_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    LiveMessage& m = message(slot);
    m.state = LiveMessage::State::gathering;
    m.shape = shape;
    m.channel = channel;
    m.needed = needed(script_.messages[static_cast<std::size_t>(shape)]);
    m.arrived = m.unwaited = 0;
    ++m.version;
    m.lanes.clear();
    m.waiting.clear();
    return slot;
  }

  void take_turn(int channel) {
    LiveChannel& c = channels_[static_cast<std::size_t>(channel)];
    if (c.next == c.queue.size()) return;
    const int id = c.queue[c.next];
    LiveMessage& m = message(id);
    if (m.state != LiveMessage::State::gathering || m.arrived < m.needed) return;
    m.state = LiveMessage::State::moving;
    m.left = prices_[static_cast<std::size_t>(m.shape)].transfer;
    m.since = now_;
    m.rate = 0;
    use_links(m, id, +1);
    share_links(m);
  }

  // A send uses the sender's way out and the receiver's way in; any other message both ways of all its lanes. Of a
  // server's link the server's way is the full one: each rank that computes has its own part of it.
  template <class Use>
  void each_use(const LiveMessage& m, Use&& use) {
    const StageMessage& shape = shape_of(m);
    const auto level = static_cast<std::size_t>(prices_[static_cast<std::size_t>(m.shape)].level);
    for (const int id : m.lanes) {
      Lane& l = lane(id);
      if (shape.peer >= 0) {
        const bool sender = (shape.op == CommOp::send) == (l.stage != shape.peer);
        use(l.uses[level][sender ? 0 : 1], 1);
      } else if (shape.among == StageMessage::Among::link) {
        const bool out = (shape.op == CommOp::broadcast) == (l.server >= 0);
        use(l.uses[level][out ? 0 : 1], l.server >= 0 ? 1.0 : 1.0 / (shape.group.ranks - 1));
      } else {
        use(l.uses[level][0], 1);
        use(l.uses[level][1], 1);
      }
    }
  }
  void use_links(LiveMessage& m, int id, int change) {
    each_use(m, [&](double& uses, double part) { uses += change * part; });
    for (const int l : m.lanes) {
      if (change > 0)
        lane(l).active.push_back(id);
      else
        std::erase(lane(l).active, id);
      change_speed(l);
    }
  }
  // Whether the stage that it is sent to sends to its stage at the same time. Those of one way follow each other.
  bool is_opposed(const LiveMessage& m) {
    if (shape_of(m).peer < 0 || prices_[static_cast<std::size_t>(m.shape)].opposed == 1) return false;
    return std::ranges::any_of(lane(m.lanes[0]).active, [&](int id) {
      const LiveMessage& other = message(id);
      return other.channel != m.channel && shape_of(other).peer >= 0 &&
             std::ranges::is_permutation(other.lanes, m.lanes);
    });
  }
  // All that move over the links of this message's lanes find their share of them, each once.
  void share_links(const LiveMessage& changed) {
    ++sharing_;
    for (const int l : changed.lanes)
      for (const int other : lane(l).active) {
        LiveMessage& m = message(other);
        if (m.looked_at == sharing_ || m.state != LiveMessage::State::moving) continue;
        m.looked_at = sharing_;
        double most = 1;
        each_use(m, [&](double uses, double) { most = std::max(most, uses); });
        const double rate = (is_opposed(m) ? prices_[static_cast<std::size_t>(m.shape)].opposed : 1) / most;
        if (rate == m.rate) continue;
        m.left = std::max(0.0, m.left - (now_ - m.since) * m.rate);
        m.since = now_;
        m.rate = rate;
        schedule(other, true, now_ + m.left / m.rate, ++m.version);
      }
  }

  // Its bytes have moved, or it is known of.
  void ends(int id) {
    LiveMessage& m = message(id);
    const double latency = prices_[static_cast<std::size_t>(m.shape)].latency;
    if (m.state == LiveMessage::State::moving) {
      use_links(m, id, -1);
      share_links(m);
      m.state = LiveMessage::State::ending;
      if (latency > 0) return schedule(id, true, now_ + latency, ++m.version);
    }
    m.state = LiveMessage::State::over;
    const int channel = m.channel;
    ++channels_[static_cast<std::size_t>(channel)].next;
    released_.clear();
    std::swap(released_, m.waiting);
    const MeshAxis axis = shape_of(m).group.axis;
    for (const int l : released_) {
      Lane& w = lane(l);
      if (w.counts) w.times.waited[at(axis)] += now_ - w.wait_began;
      recycle_waited(id);
    }
    take_turn(channel);
    for (const int l : released_) go_on(l);
  }

  void waits(int id, int number) {
    Lane& l = lane(id);
    int& slot = l.numbers[static_cast<std::size_t>(number)];
    if (slot < 0) return;  // waited for already
    const int m = std::exchange(slot, -1);
    if (message(m).state == LiveMessage::State::over) return recycle_waited(m);
    l.does = Lane::Does::waits;
    l.wait_began = now_;
    message(m).waiting.push_back(id);
  }
  void recycle_waited(int id) {
    LiveMessage& m = message(id);
    if (--m.unwaited == 0 && m.state == LiveMessage::State::over) free_.push_back(id);
  }

  void schedule(int id, bool of_message, double time, int version) {
    events_.push({time, order_++, id, version, of_message});
  }

  const WorldScript& script_;
  const MachineSpec& machine_;
  const ClockOptions& options_;
  std::vector<MessagePrice> prices_;
  std::vector<PhaseTime> phases_;
  std::size_t kinds_ = 1, stages_ = 1;
  std::vector<Lane> lanes_;
  std::vector<LiveMessage> messages_;
  std::vector<int> free_, released_;  // slots; lanes that a message has let go
  std::uint64_t sharing_ = 0;
  std::vector<LiveChannel> channels_;
  std::map<ChannelKey, int> channel_ids_;
  std::priority_queue<ClockEvent, std::vector<ClockEvent>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0;
};

}  // namespace

PhaseTime time_of(const PhaseScript& phase, const std::vector<MessagePrice>& prices,
                  const std::vector<StageMessage>& messages, double overlap_slowdown) {
  PhaseTime time;
  double now = 0;
  std::array<double, kLinkLevels> free{};  // when the link of each level is
  std::vector<double> ends;                // by number
  std::vector<int> shapes;
  double moving_until = 0;
  for (const StagePiece& piece : phase.pieces) {
    if (piece.kind == PieceKind::work) {
      const double beside = std::max(0.0, moving_until - now), slowed = piece.seconds * (1 + overlap_slowdown);
      const double took = slowed <= beside ? slowed : beside + piece.seconds - beside / (1 + overlap_slowdown);
      now += took;
      time.computed += took;
    }
    if (piece.kind == PieceKind::start) {
      const StageMessage& m = messages[static_cast<std::size_t>(piece.index)];
      const MessagePrice& price = prices[static_cast<std::size_t>(piece.index)];
      double& link = free[static_cast<std::size_t>(price.level)];
      LOCKSTEP_CHECK(m.peer < 0 && m.group.axis != MeshAxis::pp, "a phase sends to another stage");
      // A rank sends while it receives as much: the way out is counted with the way in.
      const double begin = m.op == CommOp::send ? now : std::max(now, link);
      const double moves = price.transfer / price.opposed;
      ends.push_back(begin + price.latency + moves);
      shapes.push_back(piece.index);
      if (m.op != CommOp::send) link = ends.back();  // collectives of a group go one after the other, latencies too
      moving_until = std::max(moving_until, begin + moves);
    }
    if (piece.kind == PieceKind::wait) {
      const auto number = static_cast<std::size_t>(piece.number);
      const double waits = std::max(0.0, ends[number] - now);
      time.waited[at(messages[static_cast<std::size_t>(shapes[number])].group.axis)] += waits;
      now += waits;
    }
  }
  return time;
}

std::vector<std::vector<StageTimes>> run_clock(const WorldScript& script, const MachineSpec& machine,
                                               const ClockOptions& options) {
  return DeviceClock(script, machine, options).run();
}

}  // namespace lockstep
