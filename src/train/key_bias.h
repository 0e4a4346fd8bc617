// The part of a tensor whose true gradient is zero and whose weights are therefore noise.
//
// GPT-2's key bias adds the same number to all scores of a query, which moves no probability. What is computed as its
// gradient is rounding, and Adam makes whole steps of it. So these weights say nothing about two runs being equal; it
// is the middle third of attn.c_attn.bias.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "spec/model/model_spec.h"

namespace lockstep {

// Elements [begin, end) of the logical tensor, if it has any such.
inline std::optional<std::pair<std::int64_t, std::int64_t>> key_bias_of(const ModelSpec& spec,
                                                                        const std::string& name) {
  if (spec.family != Family::gpt2 || !name.ends_with("attn.c_attn.bias")) return std::nullopt;
  return std::pair(spec.width, 2 * spec.width);
}

}  // namespace lockstep
