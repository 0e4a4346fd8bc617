// Each rank's whole order of messages, those inside phases (tp, cp) included, and the proof that the orders of all
// ranks fit each other.
//
// An order is what a rank starts and what it waits for, in every group, as its communicators see it. It fits when all
// ranks of a group start the same collectives in the same order, every send meets a recv of its type and size, and all
// ranks come to their end: a wait for a collective passes when every member has started it, a wait for a send or recv
// when the other side has. That is the contract of comm/communicator.h with nothing buffered, so no real backend needs
// more.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::tests {

struct MessageEvent {
  bool waits = false;  // false: starts
  std::size_t number;  // of the message in its rank's order
  // Of a start:
  std::string group = {};         // its name
  std::string id = {};            // which split of which group it is: two may have the same name and members
  std::vector<int> members = {};  // ranks of the world, in the group's order
  CommOp op = CommOp::barrier;
  DType dtype = DType::f32;
  std::int64_t count = 0;
  int peer = 0;  // rank of the world: the root, or the other end
  bool operator==(const MessageEvent&) const = default;
};
using MessageOrder = std::vector<MessageEvent>;

// Writes the order of what goes through it and every group split from it.
class OrderWriter final : public Communicator {
 public:
  OrderWriter(std::unique_ptr<Communicator> inner, std::vector<int> members, MessageOrder& order,
              std::string id = "world");
  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { inner_->check(); }
  std::unique_ptr<Memory> memory(Ledger& ledger) override { return inner_->memory(ledger); }

 private:
  std::unique_ptr<Communicator> inner_;
  std::vector<int> members_;
  MessageOrder& order_;
  std::string id_;
  int splits_ = 0;
};

// What is wrong with them, by rank of the world; empty: they fit.
std::string fault_of(const std::vector<MessageOrder>& orders);

}  // namespace lockstep::tests
