// Whether float tensors hold values that are not finite: NaN, or an infinity.
//
// A state with such a weight is useless: a run that starts from one, or saves one in the place of a good one, has lost
// its work. So imported weights are checked before the run begins, and weights before they are saved.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "checkpoint/state.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

// The place of the first element that is not finite, counted row-major within the tensor, and the element as text
// ("element 12 is nan"). Host tensors of float types, contiguous or, of two dims, strided rows.
struct NotFinite {
  std::int64_t element;
  double value;
};
std::optional<NotFinite> first_not_finite(const ConstTensor& tensor);

// A state that is not to be saved. Trying again would not help.
class StateRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// StateRefused that names the first weight with such an element. Other parts may hold what they like. Pieces are on the
// host, or beside the stream.
void require_finite_weights(std::span<const StateTensor> pieces, Stream* stream = nullptr);

}  // namespace lockstep
