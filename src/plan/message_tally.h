// What one rank of a world sends, counted by kind and not kept: a step of many micro-batches has millions of messages.
//
// The communicator is the one of meta (comm/meta/communicator.h), and so are the groups split from it. Each of its
// calls is checked and added up by the function that counts real messages. One thread uses them; the tally outlives
// them.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/traffic.h"

namespace lockstep {

struct SentMessages {
  std::int64_t calls = 0;
  std::int64_t sent = 0;  // elements
  std::int64_t received = 0;
  std::int64_t bytes_sent = 0;
  bool operator==(const SentMessages&) const = default;
  SentMessages& operator+=(const SentMessages& other);
  SentMessages operator-(const SentMessages& other) const;
};

class MessageTally {
 public:
  struct Kind {
    CommOp op;
    DType dtype;
    bool number;
    int peer = -1;  // of a send: to whom, by its rank in the group
    auto operator<=>(const Kind&) const = default;
  };
  using OfGroup = std::map<Kind, SentMessages>;

  OfGroup& group(const std::string& name) { return groups_[name]; }  // stays where it is
  const std::map<std::string, OfGroup>& groups() const { return groups_; }
  void clear() {
    for (auto& [name, kinds] : groups_) kinds.clear();
  }

 private:
  std::map<std::string, OfGroup> groups_;  // by their names
};

// What one rank sends in one group: tensors, without the numbers.
struct GroupMessages {
  std::string group;  // its name
  CommOp op;
  DType dtype;
  int peer;  // of a send; else -1
  SentMessages of;
  bool operator==(const GroupMessages&) const = default;
};
std::vector<GroupMessages> messages_by_group(const MessageTally& tally);

class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator(int rank, int size, const std::string& name, MessageTally& tally)
      : Communicator(rank, size, name, Device::meta), tally_(tally), counts_(tally.group(name)) {}

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;

 private:
  MessageTally& tally_;
  MessageTally::OfGroup& counts_;
};

}  // namespace lockstep
