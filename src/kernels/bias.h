// The gradient of a bias: dbias = the sum of dy over its rows. (Adding a bias is matmul's own option.)
//
// Shapes: dy (N, C); dbias (C), of dy's type or its accumulator type. Rows are summed in ascending order in blocks, the
// same for any number of threads.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct BiasBackwardArgs {
  Tensor dbias;
  ConstTensor dy;
  bool accumulate = false;
};

using BiasBackward = void(const BiasBackwardArgs&, Stream&);
BiasBackward bias_backward;
namespace cpu {
BiasBackward bias_backward;
}
namespace cuda {
BiasBackward bias_backward;
}
namespace meta {
BiasBackward bias_backward;
}

}  // namespace lockstep
