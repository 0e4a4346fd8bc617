// Which elements of a unit stay when its matrices are masked by magnitude (spec/run/sparsity_spec.h).
//
// Of each matrix, a logical tensor of n elements, the k largest stay by the order of (class, magnitude, lowest logical
// index first). The class is 0 everywhere where the mask is unstructured. Under 2:4 it is 0 for the smallest of four
// elements that follow each other along the product's inputs, 1 for the next, 2 for the two largest: as many of one
// class are above the other that no group loses more than two. The k-th in that order is found digit by digit (a radix
// select): how many elements have each value of the digit is counted by every rank of those that split the layer
// (tensor parallel), and the counts are summed. Counts are integers and the order has no ties, so every layout finds
// the same mask where it has the same weights.
//
// Groups run along the inputs because that is the dimension a product sums over (its K): hardware that skips zeros
// skips them there. A Hugging Face weight is (out, in), and GPT-2's is (in, out).
//
// Weights are given whole, of all ranks that shard the unit. What is masked already is NaN, and stays masked.
#pragma once
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "spec/model/parameters.h"
#include "spec/run/sparsity_spec.h"
#include "tensor/tensor.h"

namespace lockstep {

using MaskWords = std::vector<std::uint64_t>;  // kernels/mask.h

// Whether the tensor is masked, where its unit is of a block.
inline bool is_masked(const LogicalTensor& tensor) { return tensor.shape.size() == 2; }

struct MagnitudeMask {
  SparsitySpec sparsity;
  std::int64_t steps;  // training steps done
  bool inputs_first;   // matrices are (in, out), and not (out, in)

  // Bits of the unit's flat buffer: 1 for what stays, also of vectors; 0 for padding. `weights`: the flat fp32 or fp64
  // master weights on the cpu, whole; on meta only messages are counted, and there are no words. `layers`: the ranks
  // that split layers, on the host. All of them call it.
  MaskWords find(const UnitLayout& layout, const ConstTensor& weights, Communicator& layers) const;
};

// The elements of a shard that stay.
struct Survivors {
  MaskWords words = {};      // of the shard; none on meta
  std::int64_t kept = 0;     // in all
  std::int64_t decayed = 0;  // of those that have weight decay
  std::int64_t evenly = 0;   // on meta: how many would be kept if what stays were spread evenly
};
// Of elements [begin, begin + count) of a unit, `decayed` of which have decay; begin is a multiple of 64.
Survivors survivors_of(const MaskWords& unit, std::int64_t begin, std::int64_t count, std::int64_t decayed);

}  // namespace lockstep
