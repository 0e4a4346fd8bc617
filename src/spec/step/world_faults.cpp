#include "spec/step/world_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace lockstep {

namespace {

// What one rank sends to another, from the unit that makes it to the one that gets it.
struct SentMessage {
  ActionKind sent_as;
  int unit, micro;  // of the sender
  bool operator==(const SentMessage&) const = default;
};

SentMessage message_of(const Action& a, const StepShape& shape) {
  switch (a.kind) {
    case ActionKind::receive_input:
      return {ActionKind::send_output, a.unit - 1, a.micro};
    case ActionKind::receive_output_gradient:
      return {ActionKind::send_input_gradient, a.unit + 1, a.micro};
    case ActionKind::receive_tied_gradient:
      return {ActionKind::send_tied_gradient, shape.tie_borrower, -1};
    case ActionKind::receive_tied_weight:
      return {ActionKind::send_tied_weight, shape.tie_owner, -1};
    default:
      return {a.kind, a.unit, a.micro};
  }
}

// Replicas have the same weights; workers, along cp and tp, compute together.
enum class Axis { replicas, workers };

// Whether ranks of that axis do it together.
bool joint(const Action& a, Axis axis) {
  if (a.kind == ActionKind::norm) return true;
  const bool state = a.kind == ActionKind::gather || a.kind == ActionKind::reduce || a.kind == ActionKind::publish;
  if (axis == Axis::replicas) return state;
  return is_phase(a.kind) || a.kind == ActionKind::reduce;
}

class World {
 public:
  explicit World(const WorldLists& lists)
      : lists_(lists),
        stages_(lists.shape.stages.count()),
        ranks_(lists.ranks.size()),
        tp_(static_cast<std::size_t>(lists.tp)),
        line_(static_cast<std::size_t>(lists.cp * lists.tp)),
        replicas_(static_cast<std::size_t>(stages_) * tp_),
        workers_(static_cast<std::size_t>(stages_ * lists.dp)) {
    LOCKSTEP_CHECK(std::ssize(lists.ranks) == lists.dp * stages_ * lists.cp * lists.tp,
                   "{} lists for {} · {} · {} · {} ranks", lists.ranks.size(), lists.dp, stages_, lists.cp, lists.tp);
    for (std::size_t r = 0; r < ranks_; ++r)
      for (const Axis axis : {Axis::replicas, Axis::workers}) groups(axis)[group_of(r, axis)].push_back(r);
  }

  std::optional<std::string> own_fault() const {
    std::map<int, std::size_t> checked;  // by stage: a rank whose list is a step
    for (std::size_t r = 0; r < ranks_; ++r) {
      const auto known = checked.find(stage(r));
      if (known != checked.end() && list(known->second) == list(r)) continue;
      const StepShape shape = shape_of(r);
      if (const auto fault = find_fault(list(r), shape)) return fmt::format("rank {}, {}", r, *fault);
      if (!lists_.most_in_flight.empty()) {
        const int most = lists_.most_in_flight[static_cast<std::size_t>(stage(r))], now = in_flight(list(r), shape);
        if (now > most) return fmt::format("rank {} keeps {} micro-batches in flight, {} may be", r, now, most);
      }
      checked.try_emplace(stage(r), r);
    }
    return std::nullopt;
  }

  std::optional<std::string> order_fault() const {
    std::vector<MessagesByStage> sends, receives;  // by rank
    for (std::size_t r = 0; r < ranks_; ++r) {
      sends.push_back(messages(r, is_send));
      receives.push_back(messages(r, is_receive));
    }
    for (std::size_t from = 0; from < ranks_; ++from)
      for (int s = 0; s < stages_; ++s) {
        if (s == stage(from)) continue;
        const std::size_t to = with_stage(from, s);
        const std::vector<SentMessage>&sent = sends[from][s], &received = receives[to][stage(from)];
        const auto [a, b] = std::ranges::mismatch(sent, received);
        if (a == sent.end() && b == received.end()) continue;
        if (a == sent.end())
          return fmt::format("rank {} waits for {} from rank {}, which does not send it", to, words(*b), from);
        if (b == received.end())
          return fmt::format("rank {} sends {} to rank {}, which does not receive it", from, words(*a), to);
        return fmt::format("rank {} sends {} where rank {} receives {}", from, words(*a), to, words(*b));
      }
    for (const Axis axis : {Axis::replicas, Axis::workers})
      for (std::size_t r = 0; r < ranks_; ++r) {
        const std::size_t first = members(r, axis).front();
        const std::vector<Action> mine = joint_work(r, axis), others = joint_work(first, axis);
        const auto [a, b] = std::ranges::mismatch(mine, others);
        if (a != mine.end() || b != others.end())
          return fmt::format("rank {} comes to {} where rank {} comes to {}", r,
                             a == mine.end() ? "the end" : to_string(*a), first,
                             b == others.end() ? "the end" : to_string(*b));
      }
    return std::nullopt;
  }

  // Runs everything, each rank as far as it gets, until none gets further.
  std::optional<std::string> wait_fault() {
    at_.assign(ranks_, 0);
    started_.assign(ranks_, Started(stages_, lists_.shape.units));
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_; ++r)
        for (; at_[r] < list(r).size() && goes_on(r, list(r)[at_[r]]); ++at_[r], moved = true) run(r, list(r)[at_[r]]);
    }
    for (std::size_t r = 0; r < ranks_; ++r)
      if (at_[r] < list(r).size())
        return fmt::format("rank {} waits for ever at action {}, {}: the ranks wait for each other", r, at_[r],
                           to_string(list(r)[at_[r]]));
    return std::nullopt;
  }

 private:
  using MessagesByStage = std::map<int, std::vector<SentMessage>>;
  struct Started {
    Started(int stages, int units)
        : sends(static_cast<std::size_t>(stages)),
          receives(static_cast<std::size_t>(stages)),
          gather_of(static_cast<std::size_t>(units)) {}
    std::vector<int> sends, receives;  // by the other stage, how many
    int gathers = 0, reduces = 0;
    std::vector<int> gather_of;                                   // by unit, which gather made it whole
    std::map<std::tuple<ActionKind, int, int>, int> received_as;  // which message from that stage it is
    int come_to = 0, past = 0;                                    // of what workers do together
  };

  const std::vector<Action>& list(std::size_t r) const { return lists_.ranks[r]; }
  int stage(std::size_t r) const { return static_cast<int>(r / line_) % stages_; }
  std::size_t with_stage(std::size_t r, int s) const {
    return r + line_ * static_cast<std::size_t>(s) - line_ * static_cast<std::size_t>(stage(r));
  }
  StepShape shape_of(std::size_t r) const {
    StepShape shape = lists_.shape;
    shape.stage = stage(r);
    return shape;
  }
  using Groups = std::vector<std::vector<std::size_t>>;
  Groups& groups(Axis axis) { return axis == Axis::replicas ? replicas_ : workers_; }
  std::size_t group_of(std::size_t r, Axis axis) const {
    return axis == Axis::replicas ? static_cast<std::size_t>(stage(r)) * tp_ + r % tp_ : r / line_;
  }
  const std::vector<std::size_t>& members(std::size_t r, Axis axis) const {
    return (axis == Axis::replicas ? replicas_ : workers_)[group_of(r, axis)];
  }
  MessagesByStage messages(std::size_t r, bool (*kind)(ActionKind)) const {
    const StepShape& shape = lists_.shape;
    MessagesByStage all;
    for (const Action& a : list(r))
      if (kind(a.kind)) all[other_end(a, shape)].push_back(message_of(a, shape));
    return all;
  }
  static std::string words(const SentMessage& message) {
    return to_string(Action{message.sent_as, message.unit, message.micro});
  }
  std::vector<Action> joint_work(std::size_t r, Axis axis) const {
    std::vector<Action> all;
    for (const Action& a : list(r))
      if (joint(a, axis)) all.push_back(a);
    return all;
  }

  int sends_started(std::size_t r, int to) const { return started_[r].sends[static_cast<std::size_t>(to)]; }
  int receives_started(std::size_t r, int from) const { return started_[r].receives[static_cast<std::size_t>(from)]; }
  bool has_come(std::size_t r, ActionKind receive, int unit, int micro) const {
    const int from = other_end({receive, unit, micro}, lists_.shape);
    return sends_started(with_stage(r, from), stage(r)) > started_[r].received_as.at({receive, unit, micro});
  }
  bool all_have(std::size_t r, Axis axis, int Started::*count, int enough) const {
    return std::ranges::all_of(members(r, axis), [&](std::size_t m) { return started_[m].*count >= enough; });
  }
  bool is_whole(std::size_t r, int unit) const {
    return all_have(r, Axis::replicas, &Started::gathers, started_[r].gather_of[static_cast<std::size_t>(unit)]);
  }
  // Whether all workers of the rank have reached what they do together.
  bool workers_reached(std::size_t r) {
    const int number = started_[r].come_to = started_[r].past + 1;
    return all_have(r, Axis::workers, &Started::come_to, number);
  }

  // Whether the rank gets past the action now. Waits at and after the norm are left out: each list being a step,
  // nothing before a norm needs what comes after it, and after it every message has its receive.
  bool goes_on(std::size_t r, const Action& a) {
    const StepShape& shape = lists_.shape;
    switch (a.kind) {
      case ActionKind::forward:
        if (shape.comes(a.unit) && !has_come(r, ActionKind::receive_input, a.unit, a.micro)) return false;
        return has_weights(r, a) && workers_reached(r);
      case ActionKind::backward_input:
        if (shape.goes(a.unit) && !has_come(r, ActionKind::receive_output_gradient, a.unit, a.micro)) return false;
        return has_weights(r, a) && workers_reached(r);
      case ActionKind::backward_weight:
        return workers_reached(r);
      case ActionKind::reduce:
        if (shape.tie_is_sent() && a.unit == shape.tie_owner && (a.micro < 0 || a.micro == shape.micro - 1) &&
            !has_come(r, ActionKind::receive_tied_gradient, a.unit, -1))
          return false;
        return workers_reached(r);
      case ActionKind::release:
        return is_whole(r, a.unit);
      case ActionKind::send_tied_gradient:  // which is reduced over all ranks
        return all_have(r, Axis::replicas, &Started::reduces, started_[r].reduces) && may_send(r, a);
      default:
        return !is_send(a.kind) || may_send(r, a);
    }
  }
  bool has_weights(std::size_t r, const Action& phase) const {
    if (!lists_.shape.gathers) return true;
    return std::ranges::all_of(units_read(phase, lists_.shape), [&](int u) { return is_whole(r, u); });
  }
  bool may_send(std::size_t r, const Action& a) const {
    const int to = other_end(a, lists_.shape);
    return sends_started(r, to) - receives_started(with_stage(r, to), stage(r)) < kSendsInFlight;
  }

  void run(std::size_t r, const Action& a) {
    Started& done = started_[r];
    if (is_send(a.kind)) ++done.sends[static_cast<std::size_t>(other_end(a, lists_.shape))];
    if (is_receive(a.kind))
      done.received_as[{a.kind, a.unit, a.micro}] =
          done.receives[static_cast<std::size_t>(other_end(a, lists_.shape))]++;
    if (a.kind == ActionKind::gather) done.gather_of[static_cast<std::size_t>(a.unit)] = ++done.gathers;
    if (a.kind == ActionKind::reduce) ++done.reduces;
    if (joint(a, Axis::workers)) ++done.past;
  }

  const WorldLists& lists_;
  int stages_;
  std::size_t ranks_, tp_, line_;
  Groups replicas_, workers_;  // the ranks of each group
  std::vector<std::size_t> at_;
  std::vector<Started> started_;
};

}  // namespace

std::optional<std::string> find_world_fault(const WorldLists& lists) {
  World world(lists);
  if (auto fault = world.own_fault()) return fault;
  if (auto fault = world.order_fault()) return fault;
  return world.wait_fault();
}

int in_flight(const std::vector<Action>& list, const StepShape& shape) {
  struct Count {
    int left = 0;  // phases still to come
    bool begun = false;
  };
  std::map<int, std::vector<Count>> counts;  // by chunk, of each micro-batch
  const auto of = [&](const Action& a) -> Count& {
    std::vector<Count>& chunk = counts[shape.stages.chunk_of(a.unit)];
    chunk.resize(static_cast<std::size_t>(shape.micro));
    return chunk[static_cast<std::size_t>(a.micro)];
  };
  for (const Action& a : list)
    if (is_phase(a.kind)) ++of(a).left;
  int now = 0, most = 0;
  for (const Action& a : list) {
    if (!is_phase(a.kind)) continue;
    Count& count = of(a);
    if (!std::exchange(count.begun, true)) most = std::max(most, ++now);
    if (--count.left == 0) --now;
  }
  return most;
}

}  // namespace lockstep
