// A model's spec as a Hugging Face `config.json`, the reverse of hf_config.h.
//
// What is written is what transformers 4 and 5 both read for the family (the older form of rotary positions), every
// field of the arithmetic stated, and parse_hf_config gives the same spec back. One value has no field there: the
// `dropout` of a family other than gpt2, which acts in training alone and is left out. Token ids are null: a spec knows
// no tokenizer.
#pragma once
#include <string>
#include <string_view>

#include "spec/model_spec.h"

namespace lockstep {

// `torch_dtype` is the weights' element type as PyTorch names it: "float32", "bfloat16", "float16", "float64". The spec
// has passed validate(). JSON text that ends with a newline.
std::string hf_config_text(const ModelSpec& spec, std::string_view torch_dtype);

}  // namespace lockstep
