// The projections of a block by Hugging Face's names, and how wide they are: what LoRA's targets are chosen among.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "spec/model/model_spec.h"
#include "spec/run/lora_spec.h"

namespace lockstep {

struct Projection {
  std::string name;  // within its block, as in self_attn.q_proj
  std::int64_t in, out;
};
std::vector<Projection> projections_of(const ModelSpec& spec);

// Parameters of the adapters of all blocks.
std::int64_t lora_parameters(const ModelSpec& spec, const LoraSpec& lora);

}  // namespace lockstep
