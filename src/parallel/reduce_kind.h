// A layout's way of summing over ranks as a communicator's.
#pragma once
#include "comm/message.h"
#include "spec/layout/layout_spec.h"

namespace lockstep {

constexpr Algorithm algorithm_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::ring:
      return Algorithm::ring;
    case ReduceKind::tree:
      return Algorithm::tree;
    case ReduceKind::native:
      return Algorithm::native;
    case ReduceKind::canonical:
      break;
  }
  return Algorithm::canonical;
}

}  // namespace lockstep
