// What the ranks have while their lists are run (spec/world_brute_force.h): what each keeps, what is on its way from
// one to another, and where they meet.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <utility>
#include <vector>

#include "spec/step/world_faults.h"

namespace lockstep::tests {

// Stands for a tensor, and for everything that it was made of, in order. 0: nothing, or the weights of before the step.
using Word = std::uint64_t;
inline Word word(std::initializer_list<Word> parts) {
  Word mixed = 0x9e3779b97f4a7c15;
  for (const Word part : parts) {
    mixed = (mixed ^ part) * 0xff51afd7ed558ccd;
    mixed ^= mixed >> 32;
  }
  return mixed | 1;
}

class WorldState {
 public:
  struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

 protected:
  explicit WorldState(const WorldLists& world)
      : shape_(world.shape),
        lists_(world.ranks),
        dp_(static_cast<std::size_t>(world.dp)),
        tp_(static_cast<std::size_t>(world.tp)),
        stages_(static_cast<std::size_t>(shape_.stages.count())),
        ranks_(lists_.size(), Rank(shape_)),
        lines_(lists_.size() * stages_),
        along_dp_(stages_ * tp_),
        along_tp_(dp_ * stages_) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].stage = static_cast<int>(r / tp_ % stages_);
  }

  enum What { y, dy, saved, for_weight, of_forward, of_backward, of_borrower, tied_gradient, tied_weight, kWhats };

  // Everything has a place by unit and micro-batch; of what no micro-batch has, the last one.
  struct Rank {
    explicit Rank(const StepShape& s)
        : units(static_cast<std::size_t>(s.units)),
          places(static_cast<std::size_t>(s.micro) + 1),
          kept(kWhats * units * places, 0),
          posted(kept.size(), -1),
          live(kept.size() / kWhats, 0),
          weight(units, 0),
          elsewhere(units, 0),
          from_forward(units, 0),
          from_backward(units, 0),
          closed(units, false),
          whole(units, -1),
          reduces(units) {}
    std::size_t place(What what, int u, int m) const {
      const std::size_t micro = m < 0 ? places - 1 : static_cast<std::size_t>(m);
      return (static_cast<std::size_t>(what) * units + static_cast<std::size_t>(u)) * places + micro;
    }
    std::size_t units, places, at = 0;
    int stage = 0;
    std::vector<Word> kept;
    std::vector<int> posted;  // by place: which message from the other stage is to come there
    std::vector<int> live;    // by chunk and micro-batch, how many words are kept for its backward
    int in_flight = 0, most = 0, left = 0;
    std::vector<Word> weight, elsewhere, from_forward, from_backward;
    std::vector<bool> closed;
    std::vector<int> whole;                 // by unit: which meeting makes it whole; -1: it is not
    std::vector<std::vector<int>> reduces;  // by unit: which meetings
    Word tied = 0, norm = 0;
    std::size_t met_dp = 0, met_tp = 0;
    bool has_come = false;  // to its next action, where others are awaited
  };
  struct Line {  // of a rank to its like in another stage
    std::vector<Word> sent;
    std::size_t asked_for = 0;  // from there
  };
  struct Meeting {
    Action what;
    std::size_t come = 0;
    std::array<Word, 2> sum{};  // over the ranks, whoever comes first; of a tie's owner, the borrower's beside its own
  };

  int last() const { return shape_.units - 1; }
  int stage_of(int u) const { return shape_.stages.of(u); }
  bool is_here(std::size_t r, int u) const { return u >= 0 && u <= last() && stage_of(u) == ranks_[r].stage; }
  bool tie_is_far() const {
    return shape_.tie_owner >= 0 && stage_of(shape_.tie_owner) != stage_of(shape_.tie_borrower);
  }
  bool is_copy(std::size_t r, int u) const {
    return tie_is_far() && u == shape_.tie_owner && is_here(r, shape_.tie_borrower);
  }
  std::size_t rank_at(std::size_t r, int stage) const {
    return (r / tp_ / stages_ * stages_ + static_cast<std::size_t>(stage)) * tp_ + r % tp_;
  }
  Line& line(std::size_t r, int stage) { return lines_[r * stages_ + static_cast<std::size_t>(stage)]; }
  Line& line_back(std::size_t r, int stage) { return line(rank_at(r, stage), ranks_[r].stage); }

  // What is kept, and what is on its way.
  void put(std::size_t r, What what, int u, int m, Word value) {
    Word& kept = ranks_[r].kept[ranks_[r].place(what, u, m)];
    if (kept != 0) throw Failure("written over");
    kept = value;
    ++ranks_[r].left;
  }
  Word take(std::size_t r, What what, int u, int m) {
    Word& kept = ranks_[r].kept[ranks_[r].place(what, u, m)];
    if (kept == 0) throw Failure("read before written");
    --ranks_[r].left;
    return std::exchange(kept, 0);
  }
  void replace(std::size_t r, What what, int u, Word value) { ranks_[r].kept[ranks_[r].place(what, u, -1)] = value; }
  // Activations, of which there may be so many.
  void keep(std::size_t r, What what, int u, int m, Word value) {
    put(r, what, u, m, value);
    Rank& rank = ranks_[r];
    if (rank.live[rank.place(y, shape_.stages.chunk_of(u), m)]++ == 0)
      rank.most = std::max(rank.most, ++rank.in_flight);
  }
  Word give_up(std::size_t r, What what, int u, int m) {
    Rank& rank = ranks_[r];
    const Word value = take(r, what, u, m);
    if (--rank.live[rank.place(y, shape_.stages.chunk_of(u), m)] == 0) --rank.in_flight;
    return value;
  }

  bool send(std::size_t r, int to, What what, int u, int m) {
    if (line(r, to).sent.size() >= line_back(r, to).asked_for + kSendsInFlight) return false;
    line(r, to).sent.push_back(take(r, what, u, m));
    return true;
  }
  bool receive(std::size_t r, int from, What what, int u, int m) {
    int& posted = ranks_[r].posted[ranks_[r].place(what, u, m)];
    if (posted >= 0) throw Failure("written over");
    posted = static_cast<int>(line(r, from).asked_for++);
    return true;
  }
  bool has_come(std::size_t r, int from, What what, int u, int m) {
    const int posted = ranks_[r].posted[ranks_[r].place(what, u, m)];
    if (posted < 0) throw Failure("never asked for");
    return line_back(r, from).sent.size() > static_cast<std::size_t>(posted);
  }
  Word letter(std::size_t r, int from, int number) { return line_back(r, from).sent[static_cast<std::size_t>(number)]; }
  Word received(std::size_t r, int from, What what, int u, int m) {
    return letter(r, from, std::exchange(ranks_[r].posted[ranks_[r].place(what, u, m)], -1));
  }

  // Ranks that meet: along dp they leave their part and go on, along tp they wait for each other.
  std::size_t dp_group(std::size_t r) const { return r % (stages_ * tp_); }
  int meet_dp(std::size_t r, const Action& a, std::array<Word, 2> mine = {}) {
    std::vector<Meeting>& meetings = along_dp_[dp_group(r)];
    const std::size_t i = ranks_[r].met_dp++;
    for (Word& part : mine)
      if (part != 0) part = word({r / tp_ / stages_, part});
    come(meetings, i, a);
    for (std::size_t k = 0; k < mine.size(); ++k) meetings[i].sum[k] += mine[k];
    return static_cast<int>(i);
  }
  bool is_over(std::size_t r, int i) const { return along_dp_[dp_group(r)][static_cast<std::size_t>(i)].come == dp_; }
  bool meet_tp(std::size_t r, const Action& a) {
    std::vector<Meeting>& meetings = along_tp_[r / tp_];
    if (!std::exchange(ranks_[r].has_come, true)) come(meetings, ranks_[r].met_tp++, a);
    return meetings[ranks_[r].met_tp - 1].come == tp_;
  }
  static void come(std::vector<Meeting>& meetings, std::size_t i, const Action& a) {
    if (i == meetings.size()) meetings.push_back({.what = a});
    if (meetings[i].what != a) throw Failure("ranks come to different things");
    ++meetings[i].come;
  }

  const StepShape shape_;
  const std::vector<std::vector<Action>>& lists_;
  std::size_t dp_, tp_, stages_;
  std::vector<Rank> ranks_;
  std::vector<Line> lines_;  // by rank and other stage
  std::vector<std::vector<Meeting>> along_dp_, along_tp_;
};

}  // namespace lockstep::tests
