#include "comm/control/rank_state.h"

namespace lockstep::control {

bool RankState::fail(CommFailure first) {
  if (failure || left) return false;
  failure = std::move(first);
  return true;
}

void RankState::take(const Frame& frame) {
  switch (frame.type) {
    case FrameType::heartbeat:
      return;
    case FrameType::welcome:
      welcome = Welcome::decode(frame.payload);
      return;
    case FrameType::refused:
    case FrameType::failed:
      fail(decode_failure(frame.payload));
      return;
    case FrameType::reply: {
      Reply reply = Reply::decode(frame.payload);
      const auto at = asks.find(reply.number);
      if (at != asks.end()) at->second = std::move(reply);  // else it came too late
      return;
    }
    default:
      throw CommError(fmt::format("a frame of type {} from a coordinator", static_cast<int>(frame.type)));
  }
}

}  // namespace lockstep::control
