// The optimizer of a run, as plain data.
#pragma once
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
};

}  // namespace lockstep
