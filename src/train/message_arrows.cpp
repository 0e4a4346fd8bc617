#include "train/message_arrows.h"

#include <map>
#include <tuple>

namespace lockstep {

namespace {

// Both ends of a message between two ranks: group, sender, receiver, number. All ranks of a collective: group, -1, -1,
// number.
using MeetingKey = std::tuple<std::string, int, int, std::uint64_t>;

MeetingKey key_of(const MessageOfRank& one) {
  const TracedMessage& m = one.message;
  if (m.op == CommOp::send) return {m.key, one.rank, m.peer, m.number};
  if (m.op == CommOp::recv) return {m.key, m.peer, one.rank, m.number};
  return {m.key, -1, -1, m.number};
}

class Arrows {
 public:
  explicit Arrows(std::span<const MessageOfRank> messages) : messages_(messages) {}

  void add(const std::vector<std::size_t>& meeting) {
    const CommOp op = at(meeting.front()).op;
    if (point_to_point(op)) {
      for (const std::size_t from : meeting)
        for (const std::size_t to : meeting)
          if (at(from).op == CommOp::send && at(to).op == CommOp::recv) join(from, to);
      return;
    }
    if (std::ssize(meeting) < at(meeting.front()).ranks) return;  // somebody's is not known
    const bool from_root = op == CommOp::broadcast || op == CommOp::scatter;
    const bool to_root = op == CommOp::reduce || op == CommOp::gather;
    for (const std::size_t to : meeting) {
      const bool is_root = messages_[to].rank == at(to).peer;
      if (from_root ? is_root : to_root && !is_root) continue;
      std::size_t last = to;
      for (const std::size_t from : meeting) {
        if (from == to || (from_root && messages_[from].rank != at(from).peer)) continue;
        if (last == to || at(from).begin > at(last).begin) last = from;
      }
      // Who came last itself waited for nobody.
      if (last != to && (from_root || at(last).begin >= at(to).begin)) join(last, to);
    }
  }
  std::vector<TraceArrow> arrows;

 private:
  const TracedMessage& at(std::size_t i) const { return messages_[i].message; }
  void join(std::size_t from, std::size_t to) {
    if (!messages_[to].under_way) arrows.push_back({from, to});
  }

  std::span<const MessageOfRank> messages_;
};

}  // namespace

std::vector<TraceArrow> arrows_between(std::span<const MessageOfRank> messages) {
  std::map<MeetingKey, std::vector<std::size_t>> meetings;
  for (std::size_t i = 0; i < messages.size(); ++i) meetings[key_of(messages[i])].push_back(i);
  Arrows made(messages);
  for (const auto& [key, meeting] : meetings) made.add(meeting);
  return made.arrows;
}

}  // namespace lockstep
