// A sum that tells the contents of tensors apart, equal on every device and for any number of threads.
//
// The bytes of x, as they are stored, are hashed in blocks of 4 KiB by XXH3-64 (base/checksum.h), the last one filled
// up with zeros. Each block's sum is mixed with the block's number, and the halves of the results are added up as
// integers: additions in any order give the same two sums, and blocks that change places change them. One bit of x that
// flips changes its block's sum.
//
// Shapes: x flat (any float type), hash (kBlockHashWords) int64: the sums of the low and of the high 32 bits.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

inline constexpr std::int64_t kHashedBlock = 4096;  // bytes
inline constexpr int kBlockHashWords = 2;

struct BlockHashArgs {
  Tensor hash;
  ConstTensor x;
};

using BlockHash = void(const BlockHashArgs&, Stream&);
BlockHash block_hash;
namespace cpu {
BlockHash block_hash;
}
namespace cuda {
BlockHash block_hash;
}
namespace meta {
BlockHash block_hash;
}

}  // namespace lockstep
