// LoRA: training small low-rank adapters beside weights that stay as they are ([lora] of a run file; docs/lora.md).
//
//   y = x · Wᵀ + (alpha / rank) · (x · Aᵀ) · Bᵀ        W (out, in) frozen; A (rank, in), B (out, rank) trained
//
// Targets are projections of blocks, by Hugging Face's names: the last part of it, as in q_proj, or more of it, as in
// attn.c_proj. B begins at zero, so a run begins as the model that it started from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::string_view kAllTargets = "all";

struct LoraSpec {
  std::int64_t rank = 0;  // 0: nothing is frozen, and there are no adapters
  double alpha = 16;
  std::vector<std::string> targets = {std::string(kAllTargets)};
  std::string base = {};  // the fingerprint of the frozen weights (checkpoint/lora_base.h); empty: not known yet
  bool operator==(const LoraSpec&) const = default;

  explicit operator bool() const { return rank > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
  // Whether the projection of this name, as in "model.layers.0.self_attn.q_proj", has an adapter.
  bool adapts(std::string_view projection) const {
    return rank > 0 && std::ranges::any_of(targets, [&](std::string_view target) {
             if (target == kAllTargets || target == projection) return true;
             return projection.size() > target.size() && projection.ends_with(target) &&
                    projection[projection.size() - target.size() - 1] == '.';
           });
  }
};

// What PEFT calls the two matrices of a projection's adapter.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";
inline std::string lora_a_name(std::string_view projection) {
  return std::string(kAdapterPrefix) + std::string(projection) + ".lora_A.weight";
}
inline std::string lora_b_name(std::string_view projection) {
  return std::string(kAdapterPrefix) + std::string(projection) + ".lora_B.weight";
}

}  // namespace lockstep
