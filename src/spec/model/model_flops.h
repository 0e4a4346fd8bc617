// The useful work of training a model, as the field counts it.
#pragma once
#include <cstdint>

#include "spec/model/model_spec.h"
#include "spec/run/lora_spec.h"

namespace lockstep {

// Parameters that take part in matrix products: all but the embedding and position tables, the head once even when it
// is tied.
std::int64_t matmul_parameters(const ModelSpec& spec);

// 6·N_mm·tokens + 6·L·H·D·T²·B: forward and backward of B samples of T tokens under causal attention. Recomputation is
// not counted, so a run cannot look faster by doing things twice.
double model_flops(const ModelSpec& spec, std::int64_t B, std::int64_t T);

// The same of samples that are several documents and padding: Σ n and Σ n² over the documents of a sample, on average.
// Padding is no work, and attention is within each document.
struct SampleWork {
  double tokens = 0, squares = 0;
  static SampleWork of_sequence(std::int64_t T) {
    return {static_cast<double>(T), static_cast<double>(T) * static_cast<double>(T)};
  }
};
double model_flops(const ModelSpec& spec, std::int64_t B, const SampleWork& sample);
// Of a run with LoRA: 4·N_mm·tokens, since frozen weights have no gradient, and 6 for each parameter of an adapter.
double model_flops(const ModelSpec& spec, std::int64_t B, const SampleWork& sample, const LoraSpec& lora);

}  // namespace lockstep
