// What the cases of the loss have in common, of a whole vocabulary and of one split over ranks.
#pragma once
#include "support/cases/families.h"

namespace lockstep::tests {

struct CrossEntropyKind {
  bool gradient = true;
  bool in_place = false;
  bool strided = false;
  DType to;  // of dlogits
};

// fp16's gradients need a loss scale, and get one.
inline Operand loss_scale(DType logits, const CrossEntropyKind& kind) {
  return {"scale", {1}, accumulator_of(logits), Role::in, constant(kind.to == DType::f16 ? 100.0 : 1.0 / 7)};
}

}  // namespace lockstep::tests
