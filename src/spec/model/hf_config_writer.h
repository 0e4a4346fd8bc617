// A model's spec as a Hugging Face `config.json`, the reverse of hf_config.h.
//
// What is written is what transformers 4 and 5 both read for the family (the older form of rotary positions), every
// field of the arithmetic stated, and parse_hf_config gives the same spec back. One value has no field there: the
// `dropout` of a family other than gpt2, which acts in training alone and is left out.
//
// A spec knows no tokenizer, so token ids are null, unless the model came from a config.json: then its fields that
// change no arithmetic are carried over as they are (token ids, generation, labels, …), but for those that say how that
// folder was stored (its types, its classes, the version that wrote it).
#pragma once
#include <string>
#include <string_view>

#include "spec/model/model_spec.h"

namespace lockstep {

// `torch_dtype` is the weights' element type as PyTorch names it: "float32", "bfloat16", "float16", "float64". The spec
// has passed validate(). `from`: the text of the config.json that the model came from, which hf_config.h has read once;
// empty: none. JSON text that ends with a newline.
std::string hf_config_text(const ModelSpec& spec, std::string_view torch_dtype, std::string_view from = {});

}  // namespace lockstep
