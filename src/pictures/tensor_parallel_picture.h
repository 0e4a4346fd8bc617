// Tensor parallelism drawn: the two products of a block's feed-forward part, the first split by columns and the second
// by rows, and where the ranks exchange tokens, without and with sequence parallelism.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

struct TensorParallelSizes {
  std::int64_t ranks = 2, tokens = 8, width = 6, ffn_width = 10;
};
std::string tensor_parallel_picture(const TensorParallelSizes& sizes);

}  // namespace lockstep
