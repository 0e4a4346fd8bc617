#include "comm/apart/ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/single_rank.h"

namespace lockstep::apart {

namespace {

class FarPending final : public Pending {
 public:
  FarPending(FarRanks& far, Channel channel, std::shared_ptr<Link> link, Link::Started transfer)
      : far_(far), channel_(channel), link_(std::move(link)), transfer_(std::move(transfer)) {}

  bool done() override {
    if (!link_) return true;
    link_->advance();
    return transfer_->done || link_->broken();
  }
  void wait() override {
    if (link_) link_->wait(transfer_, far_.patience(channel_));
    if (far_.endures() || (transfer_ && transfer_->whole)) return;  // who has told all may have gone since
    throw CommError(link_ ? link_->why() : "there is no connection to a rank that is needed", true);
  }
  std::string waits_for() override { return link_ ? link_->peer() : ""; }

 private:
  FarRanks& far_;
  const Channel channel_;
  const std::shared_ptr<Link> link_;
  const Link::Started transfer_;
};

class Ranks final : public Communicator {
 public:
  // `members`: ranks of the mesh; `inner`: those of them that are of this rank's party.
  Ranks(const Parties& parties, FarRanks& far, std::vector<int> members, int place, const std::string& name,
        Communicator* inner, std::unique_ptr<Communicator> own_inner)
      : Communicator(place, static_cast<int>(members.size()), name, Device::cpu),
        parties_(parties),
        far_(far),
        members_(std::move(members)),
        own_inner_(std::move(own_inner)),
        inner_(own_inner_ ? own_inner_.get() : inner),
        channel_(name == kTicketsGroup ? Channel::tickets : Channel::tensors) {
    for (int at = 0; at < size(); ++at)
      if (is_near(at)) near_.push_back(at);
  }

  Started start(const Message& message) override {
    check_message(message, rank(), size(), device());
    LOCKSTEP_CHECK(point_to_point(message.op), "{} over ranks of several parties, in '{}'", name_of(message.op),
                   name());
    if (is_near(message.peer)) {
      LOCKSTEP_CHECK(inner_, "a message of a rank to itself");
      Message near = message;
      near.peer = static_cast<int>(std::ranges::find(near_, message.peer) - near_.begin());
      return inner_->start(near);
    }
    std::shared_ptr<Link> link = far_.to(members_[static_cast<std::size_t>(message.peer)], channel_);
    if (!link) return std::make_unique<FarPending>(far_, channel_, nullptr, nullptr);
    Link::Started transfer = message.op == CommOp::send ? link->send(message.in.raw(), message.in.bytes())
                                                        : link->receive(message.out.raw(), message.out.bytes());
    return std::make_unique<FarPending>(far_, channel_, std::move(link), std::move(transfer));
  }

  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    // All ranks of the party divide its part alike.
    std::unique_ptr<Communicator> inner;
    if (inner_) inner = inner_->split([&](int near) { return place(near_[static_cast<std::size_t>(near)]); }, name);
    if (place(rank()).color < 0) return nullptr;
    const std::vector<int> chosen = members_of(rank(), size(), place);
    const int at = static_cast<int>(std::ranges::find(chosen, rank()) - chosen.begin());
    if (std::ranges::all_of(chosen, [&](int member) { return is_near(member); })) {
      if (chosen.size() == 1) return std::make_unique<SingleRank>(device(), name);
      return inner;
    }
    std::vector<int> members;
    for (const int member : chosen) members.push_back(members_[static_cast<std::size_t>(member)]);
    return std::make_unique<Ranks>(parties_, far_, std::move(members), at, name, nullptr, std::move(inner));
  }

 private:
  bool is_near(int member) const {
    return parties_.of(members_[static_cast<std::size_t>(member)]) == parties_.of(parties_.rank);
  }

  const Parties parties_;
  FarRanks& far_;
  const std::vector<int> members_;
  std::vector<int> near_;  // of the group, those of this rank's party
  const std::unique_ptr<Communicator> own_inner_;
  Communicator* const inner_;
  const Channel channel_;
};

}  // namespace

std::unique_ptr<Communicator> make_ranks(const Parties& parties, FarRanks& far) {
  std::vector<int> members;
  for (int rank = 0; rank < parties.size; ++rank) members.push_back(rank);
  return std::make_unique<Ranks>(parties, far, std::move(members), parties.rank, "world", parties.own, nullptr);
}

}  // namespace lockstep::apart
