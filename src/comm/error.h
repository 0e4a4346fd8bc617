// Failures between ranks: a rank that did not come, that called something else, or that is gone.
//
// Every backend and wrapper reports them alike. CommFailure is a failure that is kept or sent to other ranks; CommError
// is the exception that wait() and the other calls of a communicator throw. `secondary` says that another rank caused
// the failure and reports it itself: of several ranks' errors, show the one that is not secondary.
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

struct CommFailure {
  std::string what;
  bool secondary = false;

  [[noreturn]] void raise() const { throw CommError(what, secondary); }
};

}  // namespace lockstep
