// The names Hugging Face gives to the tensors of a family.
#pragma once
#include <string>

#include "spec/model/model_spec.h"

namespace lockstep {

struct BlockNames {
  std::string norm1 = {}, norm2 = {};
  std::string query = {}, key = {}, value = {};  // separate projections, or …
  std::string qkv = {};                          // … one that is fused in the file too
  std::string out = {};
  std::string query_norm = {}, key_norm = {};
  std::string gate = {}, up = {}, down = {};  // gate is empty for a plain feed-forward
};

struct ModelNames {
  std::string embedding = {}, positions = {}, final_norm = {}, head = {};
};

BlockNames block_names(const ModelSpec& spec, std::int64_t layer);
ModelNames model_names(const ModelSpec& spec);

}  // namespace lockstep
