// The optimizer of a run, as plain data.
#pragma once
#include <array>
#include <string_view>

namespace lockstep {

enum class OptimizerKind { adamw, sgd };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9;  // AdamW
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.9;  // SGD; 0 keeps no state
  double weight_decay = 0.1;
  double clip = 1.0;  // the gradient norm's limit; 0 = none
  bool operator==(const OptimizerSpec&) const = default;
};

inline constexpr std::array kOptimizerKinds{OptimizerKind::adamw, OptimizerKind::sgd};

constexpr std::string_view name_of(OptimizerKind kind) { return kind == OptimizerKind::adamw ? "adamw" : "sgd"; }

}  // namespace lockstep
