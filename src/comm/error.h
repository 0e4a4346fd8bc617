// A failure between ranks: who did not come, who called something else, who is gone.
//
// `secondary` says that the cause is another rank's failure, which that rank reports itself: of several ranks' errors,
// the one that is not secondary is the one to show.
#pragma once
#include "base/error.h"

namespace lockstep {

class CommError : public EnvironmentError {
 public:
  explicit CommError(const std::string& what, bool secondary = false) : EnvironmentError(what), secondary_(secondary) {}
  bool secondary() const { return secondary_; }

 private:
  bool secondary_;
};

}  // namespace lockstep
