// Single numbers of the host, summed over ranks: counts, losses, whether anybody wants to stop.
#pragma once
#include <cstdint>

#include "comm/communicator.h"

namespace lockstep {

// `value` becomes the sum over the group's ranks, the same on all of them. Waits for it.
inline void sum_over(Communicator& ranks, double& value) {
  ranks.all_reduce(Tensor(&value, DType::f64, ranks.device(), {1}))->wait();
}
inline void sum_over(Communicator& ranks, std::int64_t& value) {
  ranks.all_reduce(Tensor(&value, DType::i64, ranks.device(), {1}))->wait();
}

}  // namespace lockstep
