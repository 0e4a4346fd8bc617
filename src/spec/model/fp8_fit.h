// Which projections of a block have FP8 products in a run with compute = "fp8" (model/fp8_products.h): those whose
// tokens, inputs and outputs are multiples of 16, which GPUs ask for. The others are computed in bf16.
#pragma once
#include <cstdint>
#include <string>

#include "spec/layout/tensor_split.h"
#include "spec/model/model_spec.h"

namespace lockstep {

constexpr bool fits_fp8(std::int64_t tokens, std::int64_t in, std::int64_t out) {
  return tokens % 16 == 0 && in % 16 == 0 && out % 16 == 0;
}

// The projections that do not fit, for a person to read; empty where all do. `tokens`: of a micro-batch of one rank,
// which has such a part of every layer.
std::string left_in_bf16(const ModelSpec& spec, std::int64_t tokens, const TensorSplit& split = {});

}  // namespace lockstep
