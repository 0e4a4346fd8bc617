// The group of one rank, on any device: there is nobody to exchange anything with.
//
// Used where a layout has no group along an axis. Operations in place cost nothing. Operations from one tensor into
// another are copies, which a device's own backend makes; here they are refused (ProgramError).
#pragma once
#include "comm/communicator.h"

namespace lockstep {

class SingleRank final : public Communicator {
 public:
  explicit SingleRank(Device device, const std::string& name = "world") : Communicator(0, 1, name, device) {}

  Started start(const Message& message) override {
    check_message(message, 0, 1, device());
    for (const Message& pair : pairs_of(message))
      LOCKSTEP_CHECK(pair.in.none() || pair.out.none() || pair.in.raw() == pair.out.raw(),
                     "{} from one tensor into another in a group of one", describe(message, 1));
    return std::make_unique<NothingPending>();
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return place(0).color < 0 ? nullptr : std::make_unique<SingleRank>(device(), name);
  }
};

}  // namespace lockstep
