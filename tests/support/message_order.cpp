#include "support/message_order.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep::tests {

namespace {

class Waited final : public Pending {
 public:
  Waited(std::unique_ptr<Pending> inner, MessageOrder& order, std::size_t number)
      : inner_(std::move(inner)), order_(order), number_(number) {}
  bool done() override { return inner_->done(); }
  void wait() override {
    if (!waited_) order_.push_back({.waits = true, .number = number_});
    waited_ = true;
    inner_->wait();
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Pending> inner_;
  MessageOrder& order_;
  std::size_t number_;
  bool waited_ = false;
};

// A message's other side: all of a group's collectives, or what goes from one rank to another in it.
using Channel = std::tuple<std::string, std::vector<int>, int, int>;

Channel channel_of(const MessageEvent& e, int rank) {
  if (e.op == CommOp::send) return {e.id, e.members, rank, e.peer};
  if (e.op == CommOp::recv) return {e.id, e.members, e.peer, rank};
  return {e.id, e.members, -1, -1};
}

std::string words(const MessageEvent& e) {
  return fmt::format("{} of {} {} in '{}'", name_of(e.op), e.count, name_of(e.dtype), e.group);
}

}  // namespace

OrderWriter::OrderWriter(std::unique_ptr<Communicator> inner, std::vector<int> members, MessageOrder& order,
                         std::string id)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()),
      inner_(std::move(inner)),
      members_(std::move(members)),
      order_(order),
      id_(std::move(id)) {}

Communicator::Started OrderWriter::start(const Message& message) {
  const std::size_t number = order_.size();
  const bool has_peer = point_to_point(message.op) || has_root(message.op);
  order_.push_back({.waits = false,
                    .number = number,
                    .group = name(),
                    .id = id_,
                    .members = members_,
                    .op = message.op,
                    .dtype = message.op == CommOp::barrier ? DType::f32 : dtype_of_message(message),
                    .count = message.op == CommOp::all_to_all ? 0 : count_of(message, size()),
                    .peer = has_peer ? members_[static_cast<std::size_t>(message.peer)] : -1});
  return std::make_unique<Waited>(inner_->start(message), order_, number);
}

std::unique_ptr<Communicator> OrderWriter::split(const std::function<Place(int)>& place, const std::string& name) {
  std::vector<int> members;
  if (place(rank()).color >= 0)
    for (const int r : members_of(rank(), size(), place)) members.push_back(members_[static_cast<std::size_t>(r)]);
  auto part = inner_->split(place, name);
  std::string id = fmt::format("{}/{}", id_, splits_++);
  if (!part) return nullptr;
  return std::make_unique<OrderWriter>(std::move(part), std::move(members), order_, std::move(id));
}

std::string fault_of(const std::vector<MessageOrder>& orders) {
  // Number k of a channel, by rank: when its rank has started it.
  struct Side {
    std::vector<const MessageEvent*> started;
  };
  std::map<Channel, std::map<int, Side>> channels;
  const std::size_t ranks = orders.size();
  std::vector<std::size_t> at(ranks, 0);
  std::vector<std::map<std::size_t, std::pair<Channel, std::size_t>>> places(ranks);  // of a message by its number

  const auto passes = [&](int rank, std::size_t number) {
    const auto& [channel, k] = places[static_cast<std::size_t>(rank)].at(number);
    const auto& sides = channels.at(channel);
    const std::vector<int> members =
        std::get<2>(channel) < 0 ? std::get<1>(channel) : std::vector{std::get<2>(channel), std::get<3>(channel)};
    return std::ranges::all_of(members, [&](int member) {
      const auto side = sides.find(member);
      return side != sides.end() && side->second.started.size() > k;
    });
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks; ++r)
      for (; at[r] < orders[r].size(); ++at[r], moved = true) {
        const MessageEvent& e = orders[r][at[r]];
        if (e.waits) {
          if (!passes(static_cast<int>(r), e.number)) break;
          continue;
        }
        const Channel channel = channel_of(e, static_cast<int>(r));
        auto& started = channels[channel][static_cast<int>(r)].started;
        places[r].emplace(e.number, std::pair(channel, started.size()));
        started.push_back(&e);
      }
  }
  for (std::size_t r = 0; r < ranks; ++r)
    if (at[r] < orders[r].size()) {
      const MessageEvent& waited = orders[r][orders[r][at[r]].number];
      return fmt::format("rank {} waits for ever for {}", r, words(waited));
    }
  for (const auto& [channel, sides] : channels) {
    const auto& first = sides.begin()->second.started;
    const std::size_t members = std::get<2>(channel) < 0 ? std::get<1>(channel).size() : 2;
    if (sides.size() != members && members > 1)
      return fmt::format("{} is started by {} of {} ranks", words(*first[0]), sides.size(), members);
    for (const auto& [rank, side] : sides) {
      if (side.started.size() != first.size())
        return fmt::format("rank {} starts {} messages of '{}', rank {} starts {}", rank, side.started.size(),
                           std::get<0>(channel), sides.begin()->first, first.size());
      for (std::size_t k = 0; k < first.size(); ++k) {
        const MessageEvent &a = *first[k], &b = *side.started[k];
        const bool same_op = point_to_point(a.op) || (a.op == b.op && a.peer == b.peer);
        if (!same_op || a.dtype != b.dtype || a.count != b.count)
          return fmt::format("rank {} has {} where rank {} has {}", rank, words(b), sides.begin()->first, words(a));
      }
    }
  }
  return "";
}

}  // namespace lockstep::tests
