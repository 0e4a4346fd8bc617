// A transformer as plain data: everything a model family differs in, and nothing else.
//
// One block structure serves every supported family; a family is a set of values here, not a class. Letters as
// everywhere: V vocabulary, L layers, C width, H heads, K key/value heads, D head width, F feed-forward width.
//
// A spec comes from a Hugging Face config.json (hf_config.h) or from a TOML table (model_toml.h); both start from
// family_defaults() and end in validate(), so a spec that reached the rest of the program is known to be sound.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

enum class Family { llama, mistral, qwen2, qwen3, gpt2 };
enum class NormKind { rms, layer };   // RMSNorm (weight only) or LayerNorm (weight and bias)
enum class MlpKind { swiglu, gelu };  // silu(gate) * up, or GELU(tanh) of one projection
enum class PositionKind { rope, learned };

inline constexpr std::array kFamilies{Family::llama, Family::mistral, Family::qwen2, Family::qwen3, Family::gpt2};

// The largest value any one size may have, the most layers, and the most elements of a whole model. Far above any
// model that exists, and low enough that bytes and FLOPs of a checked spec stay within 63 bits.
inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
inline constexpr std::int64_t kMaxIndex = 0x7fffffff;  // tokens and positions are int32
inline constexpr std::int64_t kMaxHeadSize = 256;      // what attention's tiles hold
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 16;
inline constexpr std::int64_t kMaxParameters = std::int64_t{1} << 50;

// Llama 3's frequency scaling: long wavelengths are slowed by `factor`, short ones kept, the band between blended.
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_positions = 0;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelSpec {
  Family family = Family::llama;
  std::int64_t vocabulary = 0;  // V
  std::int64_t layers = 0;      // L
  std::int64_t width = 0;       // C
  std::int64_t heads = 0;       // H
  std::int64_t kv_heads = 0;    // K
  std::int64_t head_width = 0;  // D, not always C / H
  std::int64_t ffn_width = 0;   // F
  std::int64_t max_positions = 0;

  NormKind norm = NormKind::rms;
  double norm_eps = 1e-5;
  MlpKind mlp = MlpKind::swiglu;
  PositionKind positions = PositionKind::rope;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling = std::nullopt;

  bool tied = false;            // the head reads the embedding's weight
  bool qkv_bias = false;        // biases of the query, key and value projections
  bool out_bias = false;        // bias of attention's output projection
  bool mlp_bias = false;        // biases of the feed-forward projections
  bool qk_norm = false;         // RMSNorm of each query and key head before RoPE
  bool in_out_weights = false;  // projections are stored (in, out) as GPT-2's Conv1D, not (out, in)

  double dropout = 0;            // on the embedding and on each branch before it joins the residual
  double attention_dropout = 0;  // on the attention probabilities
  double init_std = 0.02;

  bool operator==(const ModelSpec&) const = default;
};

std::string_view name_of(Family family);  // Hugging Face's model_type
std::optional<Family> family_named(std::string_view name);
std::string family_names();  // "llama, mistral, …", for messages

// What a family's description means by what it leaves out: the structure (norm, mlp, biases, …) and the value that
// transformers' configuration class of that family gives each absent field. Sizes are 0, but for max_positions.
ModelSpec family_defaults(Family family);

// How many elements the model's logical tensors hold; a tied head is not counted again. The spec has passed validate().
std::int64_t parameter_count(const ModelSpec& spec);

// UserError of the given code when a value is out of its range or values contradict each other: heads not a multiple of
// key/value heads, an odd head width under RoPE, a structure that the family's stored form has no names for, …
// `where` names the source in the message.
void validate(const ModelSpec& spec, const std::string& where, ExitCode code = ExitCode::usage);

}  // namespace lockstep
