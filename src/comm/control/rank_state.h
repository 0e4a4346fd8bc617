// What a rank has heard from the coordinator, without its connection and thread (comm/control/session.h).
//
// Input: frames of the rank's epoch. A frame that no coordinator sends, or that breaks a limit, is a CommError, after
// which nothing has changed; the session then fails. The first failure stays, and none counts once the rank has left.
// Replies to what is not, or no longer, asked are ignored. One thread at a time: the session holds its mutex.
#pragma once
#include <map>

#include "comm/control/wire.h"
#include "comm/error.h"

namespace lockstep::control {

struct RankState {
  std::optional<CommFailure> failure = {};
  std::optional<Welcome> welcome = {};
  bool left = false;
  std::map<std::uint32_t, std::optional<Reply>> asks = {};  // under way, by number; what has come of each

  void take(const Frame& frame);
  bool fail(CommFailure failure);  // whether it is the first
};

}  // namespace lockstep::control
