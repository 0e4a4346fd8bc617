// The communicator of `meta`: one rank of a world of any size, in which nothing is sent.
//
// Calls are checked as everywhere and are done at once. Wrapped in a Recorder it counts what that rank of that world
// would send, by the function that counts real messages; no other rank, thread or byte exists.
#pragma once
#include <algorithm>

#include "comm/communicator.h"

namespace lockstep::meta {

class Communicator final : public lockstep::Communicator {
 public:
  Communicator(int rank, int size, const std::string& name = "world")
      : lockstep::Communicator(rank, size, name, Device::meta) {
    LOCKSTEP_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  }

  Started start(const Message& message) override {
    check_message(message, rank(), size(), Device::meta);
    return std::make_unique<NothingPending>();
  }

  std::unique_ptr<lockstep::Communicator> split(const std::function<Place(int)>& place,
                                                const std::string& name) override {
    if (place(rank()).color < 0) return nullptr;
    const std::vector<int> members = members_of(rank(), size(), place);
    const auto mine = std::find(members.begin(), members.end(), rank());
    return std::make_unique<Communicator>(static_cast<int>(mine - members.begin()), static_cast<int>(members.size()),
                                          name);
  }
};

}  // namespace lockstep::meta
