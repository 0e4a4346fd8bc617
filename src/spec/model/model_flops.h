// The useful work of training a model, as the field counts it.
#pragma once
#include <cstdint>

#include "spec/model/model_spec.h"

namespace lockstep {

// Parameters that take part in matrix products: all but the embedding and position tables, the head once even when it
// is tied.
std::int64_t matmul_parameters(const ModelSpec& spec);

// 6·N_mm·tokens + 6·L·H·D·T²·B: forward and backward of B samples of T tokens under causal attention. Recomputation is
// not counted, so a run cannot look faster by doing things twice.
double model_flops(const ModelSpec& spec, std::int64_t B, std::int64_t T);

}  // namespace lockstep
