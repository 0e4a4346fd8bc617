// A model's spec from a Hugging Face `config.json`, as transformers 4 and 5 write it.
//
// Families: llama (2, 3 and the scaled rotary positions of 3.1 and 3.2), mistral, qwen2, qwen3, gpt2.
// Sizes must be stated. Any other absent or null field has the value that transformers' configuration class gives it
// (model_spec.h, family_defaults). Two fields are read as that library reads them, null apart from absence: a null
// `num_key_value_heads` means as many as heads, and a null `sliding_window` means none.
//
// Nothing is ignored in silence. A feature that is not supported (a sliding window in use, another rotary kind,
// quantization, experts, another activation, …) is refused by name, and so is any field that is neither understood nor
// on the list of fields known to change no arithmetic.
//
// Failure: UserError of code bad_input_file, one line with `where` and the field.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "spec/model/model_spec.h"

namespace lockstep {

ModelSpec read_hf_config(const std::filesystem::path& file);
ModelSpec parse_hf_config(std::string_view json_text, const std::string& where);

// The fields known to change no arithmetic: token ids, how a library generates or runs the model, other tasks.
std::span<const std::string_view> hf_fields_without_arithmetic();

}  // namespace lockstep
