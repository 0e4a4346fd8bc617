// Checks the program against reference data: a folder that says what a model computes and how it trains.
//
// The folder holds `config.json` and `model.safetensors` (the model), `run.json` (hyperparameters; the loss and
// gradient norm of each step) and `expected.safetensors` (`tokens` [steps, B, T+1]; of step 0: `logits` and
// `grad.<name>`; `final.<name>` after the last step). The model is trained on those tokens and compared with all of it.
// Errors of tensors are relative to the reference's norm, which has a floor of 1e-6 of the norm of all of them
// together, since some true gradients are zero; under 16-bit precisions a gradient's error is one minus its cosine with
// the reference. Under a layout of several ranks, which are threads, each rank takes its share of every batch; compared
// are rank 0's values, and every rank's logits.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "spec/layout/layout_spec.h"
#include "spec/model/precision.h"
#include "tensor/device.h"

namespace lockstep {

struct ReferenceItem {
  std::string name;
  double error;
  double tolerance;
  bool ok() const { return error <= tolerance; }  // false for NaN
};

struct ReferenceReport {
  Precision precision;
  std::int64_t steps;
  std::vector<ReferenceItem> items;
  bool ok() const;
};

struct ReferenceOptions {
  Precision precision = Precision::fp64;
  int threads = 1;  // of the cpu
  Device device = Device::cpu;
  LayoutSpec layout = {};
};

// UserError (bad_input_file) when the folder is not what is said above, (usage) when its batches cannot be laid out so.
ReferenceReport verify_reference(const std::filesystem::path& folder, const ReferenceOptions& options);

}  // namespace lockstep
