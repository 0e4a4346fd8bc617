// A model's spec as TOML: the presets of configs/models/ and the resolved run file.
//
//   [model]
//   family = "llama"          # llama, mistral, qwen2, qwen3, gpt2; sets what the other keys may leave out
//   vocabulary = 32000        # required, as are layers, width, heads, ffn_width and max_positions
//   layers = 8
//   width = 512
//   heads = 8
//   kv_heads = 8              # heads when left out
//   head_width = 64           # width / heads when left out
//   ffn_width = 1376
//   max_positions = 1024
//   norm_eps = 1e-5           # this and every other field of ModelSpec: family_defaults() when left out
//   [model.rope_scaling]      # none when left out, all four keys when given
//   factor = 8.0
//   low_freq_factor = 1.0
//   high_freq_factor = 4.0
//   original_positions = 8192
//
// The keys are the names of ModelSpec's fields; norm is "rms" or "layer", mlp "swiglu" or "gelu", positions "rope" or
// "learned". A whole number is good where a fraction is meant, never the reverse.
//
// Failure: UserError of code usage, one line with `where`, the line and the key; an unknown key comes with the nearest
// known one. What parses has passed validate().
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "spec/model/model_spec.h"

namespace lockstep {

class TomlTable;
class TomlWriter;

ModelSpec parse_model_toml(std::string_view text, const std::string& where);

// Every field written out. parse_model_toml of it gives the same spec to the last bit.
std::string to_toml(const ModelSpec& spec);

// The same for a table [model] of a larger document (run_toml.h), whose other keys are the caller's to know.
std::vector<std::string_view> model_keys();
ModelSpec read_model_fields(const TomlTable& model);
// The stated keys over a whole spec. What followed from width and heads there (head_width, kv_heads) still does.
ModelSpec read_model_fields(const TomlTable& model, const ModelSpec& over);
void write_model_fields(const ModelSpec& spec, TomlWriter& writer);

}  // namespace lockstep
