// The lists of all ranks of a mesh, run over words instead of tensors by a machine that knows no rule about lists.
//
// Each rank runs its list from the beginning. A phase turns the word it is given into another and leaves what its
// backward will need; a send puts a word behind those that went to the same rank before, a receive gets the next of
// them, whatever it was meant to be. What a rank needs from others it waits for; every read of something that is not
// there, every write over something still needed, ranks that meet over different things and ranks that wait for each
// other are failures of the machine itself. Whether the lists are right is seen by what is left behind: what one rank
// leaves that runs everything alone.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "spec/world_state.h"

namespace lockstep::tests {

class WorldBruteForce : private WorldState {
 public:
  using WorldState::Failure;
  // What a rank leaves behind, by unit. `elsewhere`: the weights on a rank that did not update them itself.
  struct End {
    std::vector<Word> weight, elsewhere, from_forward, from_backward;
  };

  explicit WorldBruteForce(const WorldLists& world) : WorldState(world) {}

  // Which rank gets to run next, and how far, is drawn at random: it must not matter.
  void run(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::size_t> turn(ranks_.size());
    std::iota(turn.begin(), turn.end(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = turn.size(); i > 1; --i) std::swap(turn[i - 1], turn[random() % i]);
      for (const std::size_t r : turn)
        for (std::size_t far = 1 + random() % 64; far > 0 && ranks_[r].at < lists_[r].size(); --far, moved = true) {
          const Action& a = lists_[r][ranks_[r].at];
          if (!exists(r, a)) throw Failure("nothing to act upon: " + to_string(a));
          if (!gets_past(r, a)) break;
          ++ranks_[r].at;
          ranks_[r].has_come = false;
        }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) check_end(r);
  }

  End end(std::size_t r) const {
    const Rank& rank = ranks_[r];
    return {rank.weight, rank.elsewhere, rank.from_forward, rank.from_backward};
  }
  // The most micro-batches of a chunk that a rank kept anything of at a time.
  int most_in_flight(std::size_t r) const { return ranks_[r].most; }

 private:
  // Whether the rank has what the action is about.
  bool exists(std::size_t r, const Action& a) const {
    const bool here = is_here(r, a.unit), each = a.micro >= 0 && a.micro < shape_.micro, once = a.micro == -1;
    switch (a.kind) {
      case ActionKind::forward:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        return here && each;
      case ActionKind::stash:  // of no step with a flush
        return false;
      case ActionKind::gather:
      case ActionKind::release:
        return shape_.gathers && once && (here || is_copy(r, a.unit));
      case ActionKind::reduce:
        return here && (shape_.reduces_each ? each : once);
      case ActionKind::norm:
        return a.unit == -1 && once;
      case ActionKind::update:
        return here && once;
      case ActionKind::publish:
        return shape_.publishes && once && (here || is_copy(r, a.unit));
      case ActionKind::send_output:
      case ActionKind::receive_output_gradient:
        return here && each && a.unit < last() && !is_here(r, a.unit + 1);
      case ActionKind::receive_input:
      case ActionKind::send_input_gradient:
        return here && each && a.unit > 0 && !is_here(r, a.unit - 1);
      case ActionKind::send_tied_gradient:
      case ActionKind::receive_tied_weight:
        return here && once && tie_is_far() && a.unit == shape_.tie_borrower;
      case ActionKind::receive_tied_gradient:
      case ActionKind::send_tied_weight:
        return here && once && tie_is_far() && a.unit == shape_.tie_owner;
    }
    return false;
  }

  // Runs the action, or has to wait and changes nothing.
  bool gets_past(std::size_t r, const Action& a) {
    const int u = a.unit, m = a.micro;
    switch (a.kind) {
      case ActionKind::forward:
        return forward(r, a);
      case ActionKind::backward_input:
        return backward_input(r, a);
      case ActionKind::backward_weight:
        return backward_weight(r, a);
      case ActionKind::gather:
        if (ranks_[r].whole[u] >= 0 || has_moved(r, u)) throw Failure("no use in gathering it");
        ranks_[r].whole[u] = meet_dp(r, a);
        return true;
      case ActionKind::stash:
        return false;
      case ActionKind::release:
        if (ranks_[r].whole[u] < 0) throw Failure("not whole");
        if (!is_over(r, ranks_[r].whole[u])) return false;
        ranks_[r].whole[u] = -1;
        return true;
      case ActionKind::reduce:
        return reduce(r, a);
      case ActionKind::norm:
        return norm(r, a);
      case ActionKind::update:
        return update(r, u);
      case ActionKind::publish:
        return publish(r, a);
      case ActionKind::send_output:
        return send(r, stage_of(u + 1), y, u, m);
      case ActionKind::send_input_gradient:
        return send(r, stage_of(u - 1), dy, u - 1, m);
      case ActionKind::send_tied_gradient:
        // What is sent is the gradient of all ranks.
        if (!ranks_[r].reduces[u].empty() && !is_over(r, ranks_[r].reduces[u].back())) return false;
        if (ranks_[r].kept[ranks_[r].place(tied_gradient, u, -1)] != 0) replace(r, tied_gradient, u, reduced(r, u));
        return send(r, stage_of(shape_.tie_owner), tied_gradient, u, -1);
      case ActionKind::send_tied_weight:
        return send(r, stage_of(shape_.tie_borrower), tied_weight, u, -1);
      case ActionKind::receive_input:
        return receive(r, stage_of(u - 1), y, u - 1, m);
      case ActionKind::receive_output_gradient:
        return receive(r, stage_of(u + 1), dy, u, m);
      case ActionKind::receive_tied_gradient:
        return receive(r, stage_of(shape_.tie_borrower), tied_gradient, u, -1);
      case ActionKind::receive_tied_weight:
        // Whether weights move at all is known by the norm, and they move under nobody who computes with them.
        if (ranks_[r].norm == 0 || ranks_[r].whole[shape_.tie_owner] >= 0) throw Failure("old weights are in use");
        return receive(r, stage_of(shape_.tie_owner), tied_weight, shape_.tie_owner, -1);
    }
    return false;
  }

  bool forward(std::size_t r, const Action& a) {
    Rank& rank = ranks_[r];
    const int u = a.unit, m = a.micro;
    const bool far = u > 0 && !is_here(r, u - 1);
    if (far && !has_come(r, stage_of(u - 1), y, u - 1, m)) return false;
    if (!can_read(r, u)) return false;
    if (u == shape_.tie_borrower && !can_read(r, shape_.tie_owner)) return false;
    if (!meet_tp(r, a)) return false;
    const Word x = u == 0 ? word({'x', r / tp_ / stages_, Word(m)})
                   : far  ? received(r, stage_of(u - 1), y, u - 1, m)
                          : take(r, y, u - 1, m);
    keep(r, saved, u, m, x);
    if (u < last()) return put(r, y, u, m, word({'f', Word(u), Word(m), x})), true;
    add(r, rank.from_forward, u, word({'h', x}));
    if (shape_.reduces_each) put(r, of_forward, u, m, word({'h', x}));
    put(r, dy, u, m, word({'l', x}));
    return true;
  }

  bool backward_input(std::size_t r, const Action& a) {
    const int u = a.unit, m = a.micro;
    const bool far = u < last() && !is_here(r, u + 1);
    if (far && !has_come(r, stage_of(u + 1), dy, u, m)) return false;
    if (u > 0 && !can_read(r, u)) return false;  // the first unit has no input to make a gradient of
    if (!meet_tp(r, a)) return false;
    const Word gradient = far ? received(r, stage_of(u + 1), dy, u, m) : take(r, dy, u, m);
    keep(r, for_weight, u, m, word({gradient, ranks_[r].kept[ranks_[r].place(saved, u, m)]}));
    give_up(r, saved, u, m);
    if (u > 0) put(r, dy, u - 1, m, word({'b', Word(u), Word(m), gradient}));
    return true;
  }

  bool backward_weight(std::size_t r, const Action& a) {
    if (!meet_tp(r, a)) return false;
    const Word gradient = give_up(r, for_weight, a.unit, a.micro);
    add(r, ranks_[r].from_backward, a.unit, gradient);
    if (shape_.reduces_each) put(r, of_backward, a.unit, a.micro, gradient);
    return true;
  }

  bool reduce(std::size_t r, const Action& a) {
    Rank& rank = ranks_[r];
    const int u = a.unit, m = a.micro, stage = stage_of(shape_.tie_borrower < 0 ? 0 : shape_.tie_borrower);
    const bool closes = !shape_.reduces_each || m == shape_.micro - 1, owns = u == shape_.tie_owner;
    if (owns && closes && tie_is_far() && !has_come(r, stage, tied_gradient, u, -1)) return false;
    if (!meet_tp(r, a)) return false;
    std::array<Word, 2> mine{};
    if (shape_.reduces_each) {
      mine[0] = word({u == last() ? take(r, of_forward, u, m) : 0, take(r, of_backward, u, m)});
      // Where a tie's owner is here too, the borrower begins the sum.
      if (shape_.has_tie() && !tie_is_far() && u == shape_.tie_borrower) put(r, of_borrower, shape_.tie_owner, m, 1);
      if (owns && !tie_is_far()) take(r, of_borrower, u, m);
    } else {
      mine[0] = word({rank.from_forward[u], rank.from_backward[u]});
      const int tied = shape_.tie_borrower;
      if (owns && !tie_is_far()) mine[1] = word({rank.from_forward[tied], rank.from_backward[tied]});
    }
    if (closes && rank.closed[u]) throw Failure("reduced twice");
    if (closes) rank.closed[u] = true;
    if (closes && owns && tie_is_far()) rank.tied = received(r, stage, tied_gradient, u, -1);
    if (closes && tie_is_far() && u == shape_.tie_borrower) put(r, tied_gradient, u, -1, 1);
    rank.reduces[u].push_back(meet_dp(r, a, mine));
    return true;
  }

  bool norm(std::size_t r, const Action& a) {
    Rank& rank = ranks_[r];
    if (rank.norm != 0) throw Failure("a second norm");
    if (rank.left != 0) throw Failure("something has not been handed on");
    for (int u = 0; u <= last(); ++u) {
      if (is_here(r, u) && !rank.closed[u]) throw Failure("not reduced");
      for (const int meeting : rank.reduces[u])
        if (!is_over(r, meeting)) return false;
    }
    for (int s = 0; s < static_cast<int>(stages_); ++s)
      if (line(r, s).sent.size() > line_back(r, s).asked_for) return false;
    if (!rank.has_come) meet_dp(r, a), ++at_norm_;
    if (!meet_tp(r, a) || at_norm_ < ranks_.size()) return false;
    Word all = 0;
    for (int u = 0; u <= last(); ++u) all = word({all, gradient(rank_at(r, stage_of(u)), u)});
    rank.norm = all;
    return true;
  }

  bool update(std::size_t r, int u) {
    Rank& rank = ranks_[r];
    if (rank.norm == 0) throw Failure("no norm");
    if (rank.weight[u] != 0) throw Failure("updated twice");
    if (rank.whole[u] >= 0) throw Failure("old weights are in use");
    rank.weight[u] = word({'w', Word(u), gradient(r, u), rank.norm});
    if (tie_is_far() && u == shape_.tie_owner) put(r, tied_weight, u, -1, rank.weight[u]);
    return true;
  }

  bool publish(std::size_t r, const Action& a) {
    Rank& rank = ranks_[r];
    if (rank.elsewhere[a.unit] != 0) throw Failure("published twice");
    if (is_copy(r, a.unit)) {
      if (!has_come(r, stage_of(a.unit), tied_weight, a.unit, -1)) return false;
      rank.weight[a.unit] = letter(r, stage_of(a.unit), rank.posted[rank.place(tied_weight, a.unit, -1)]);
    }
    if (rank.weight[a.unit] == 0) throw Failure("nothing to publish");
    rank.elsewhere[a.unit] = rank.weight[a.unit];
    meet_dp(r, a);
    return true;
  }

  // All ranks are at their ends, all messages where they belong, all meetings over.
  void check_end(std::size_t r) {
    Rank& rank = ranks_[r];
    if (rank.at < lists_[r].size()) throw Failure("waits for ever at " + to_string(lists_[r][rank.at]));
    if (shape_.tie_owner >= 0 && is_copy(r, shape_.tie_owner)) {
      if (!has_come(r, stage_of(shape_.tie_owner), tied_weight, shape_.tie_owner, -1)) throw Failure("no new copy");
      rank.weight[shape_.tie_owner] = received(r, stage_of(shape_.tie_owner), tied_weight, shape_.tie_owner, -1);
    }
    for (int s = 0; s < static_cast<int>(stages_); ++s)
      if (line(r, s).sent.size() != line_back(r, s).asked_for) throw Failure("a message is left");
    for (const Meeting& meeting : along_dp_[dp_group(r)])
      if (meeting.come < dp_) throw Failure("not all came");
    if (rank.left != 0 || std::ranges::any_of(rank.posted, [](int message) { return message >= 0; }) ||
        std::ranges::any_of(rank.whole, [](int meeting) { return meeting >= 0; }))
      throw Failure("something is left over");
  }

  bool has_moved(std::size_t r, int u) const {
    return ranks_[r].weight[u] != 0 || ranks_[r].posted[ranks_[r].place(tied_weight, u, -1)] >= 0;
  }
  bool can_read(std::size_t r, int u) const {
    if (has_moved(r, u)) throw Failure("the weight has moved already");
    if (!shape_.gathers) return true;
    if (ranks_[r].whole[u] < 0) throw Failure("the weight is not here");
    return is_over(r, ranks_[r].whole[u]);
  }
  void add(std::size_t r, std::vector<Word>& sums, int u, Word value) {
    if (ranks_[r].closed[u]) throw Failure("the gradient is closed");
    sums[u] = word({sums[u], value});
  }
  // The unit's own, summed over the ranks, in the order in which it was reduced; and a tie's.
  Word reduced(std::size_t r, int u) const {
    Word sum = 0;
    for (const int i : ranks_[r].reduces[u])
      sum = word({sum, along_dp_[dp_group(r)][static_cast<std::size_t>(i)].sum[0]});
    return sum;
  }
  Word gradient(std::size_t r, int u) const {
    if (u != shape_.tie_owner) return reduced(r, u);
    if (tie_is_far()) return word({reduced(r, u), ranks_[r].tied});
    if (shape_.reduces_each) return word({reduced(r, u), reduced(r, shape_.tie_borrower)});
    const Word tied = along_dp_[dp_group(r)][static_cast<std::size_t>(ranks_[r].reduces[u].back())].sum[1];
    return word({reduced(r, u), word({0, tied})});
  }

  std::size_t at_norm_ = 0;  // how many ranks have come to it
};

}  // namespace lockstep::tests
