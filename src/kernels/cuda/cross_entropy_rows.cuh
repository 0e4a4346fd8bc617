// What both ways of making a row's loss share (cross_entropy_held.cuh, cross_entropy_walked.cuh).
//
// A target outside the vocabulary cannot throw on a device. Its row becomes NaN, loss and gradient, so that no update
// is made of it.
#pragma once
#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/cuda/packs.cuh"

namespace lockstep::cuda {

template <class S, class D>
struct LossRows {
  Rows<D> dlogits;  // may be none
  Rows<const S> logits;
  const std::int32_t* targets;
  const Compute<S>* scale;
  Compute<S>* losses;
  std::int32_t* likeliest;  // may be none, or the targets
  std::int64_t count;
  int vocabulary;

  __device__ const S* logits_of(std::int64_t row) const { return logits[RowPlace{row, 0}]; }
  __device__ D* dlogits_of(std::int64_t row) const { return dlogits[RowPlace{row, 0}]; }
  __device__ bool in_vocabulary(std::int32_t target) const { return target >= 0 && target < vocabulary; }
};

// The loss, and every element of the gradient, of a row whose target is not in the vocabulary.
template <class T>
__device__ inline T without_target(std::int32_t target) {
  return target == kIgnoredTarget ? T(0) : std::numeric_limits<T>::quiet_NaN();
}

// What logits are taken relative to: their maximum, but where they are all -inf, zero, so that exponentials are zero
// and not NaN. (The row's loss is NaN all the same.)
template <class T>
__device__ inline T base_of(T top) {
  return top == -std::numeric_limits<T>::infinity() ? T(0) : top;
}

}  // namespace lockstep::cuda
