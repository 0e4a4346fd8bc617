// The group of one, on any device: there is nobody to exchange anything with.
//
// What is in place stays where it is and costs nothing. Operations from one tensor into another are copies, which a
// device's own backend makes: here they are refused (ProgramError).
#pragma once
#include "comm/communicator.h"

namespace lockstep {

class Alone final : public Communicator {
 public:
  explicit Alone(Device device, const std::string& name = "world") : Communicator(0, 1, name, device) {}

  Started start(const Message& message) override {
    check_message(message, 0, 1, device());
    LOCKSTEP_CHECK(message.in.none() || message.out.none() || message.in.raw() == message.out.raw(),
                   "{} from one tensor into another in a group of one", describe(message, 1));
    return std::make_unique<NothingPending>();
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return place(0).color < 0 ? nullptr : std::make_unique<Alone>(device(), name);
  }
};

}  // namespace lockstep
