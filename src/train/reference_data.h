// The files of a reference folder, read and checked (train/reference.h says what they hold).
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "spec/model/model_spec.h"
#include "spec/model/parameters.h"
#include "spec/run/optimizer_spec.h"

namespace lockstep {

class ReferenceData {
 public:
  explicit ReferenceData(const std::filesystem::path& folder);

  const ModelSpec& spec() const { return spec_; }
  const SafetensorsFile& weights() const { return weights_; }
  const OptimizerSpec& optimizer() const { return optimizer_; }
  const std::vector<double>& losses() const { return losses_; }
  const std::vector<double>& norms() const { return norms_; }
  std::int64_t steps() const { return steps_; }
  std::int64_t B() const { return B_; }
  std::int64_t T() const { return T_; }

  // Inputs and targets of a step, (B·T) each.
  struct StepTokens {
    std::vector<std::int32_t> tokens, targets;
  };
  StepTokens tokens(std::int64_t step) const;
  // A tensor of expected.safetensors as doubles; it must have this shape.
  std::vector<double> expected(const std::string& name, const std::vector<std::int64_t>& shape) const;

 private:
  void read_run();
  [[noreturn]] void refuse(const std::string& file, const std::string& problem) const;

  std::filesystem::path folder_;
  ModelSpec spec_;
  SafetensorsFile weights_, expected_;
  OptimizerSpec optimizer_;
  std::vector<double> losses_, norms_;
  std::int64_t steps_ = 0, B_ = 0, T_ = 0;
};

}  // namespace lockstep
