// Training runs over thread ranks from a beginning or a checkpoint, and all they hold at the end, put together.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace lockstep::tests {

constexpr std::int64_t kSavedStep = 2, kAllSteps = 4;

// A small run that clips, saves after kSavedStep steps and ends after kAllSteps.
RunSpec resumed_run(const ModelSpec& model, const LayoutSpec& layout);

// Every logical tensor of the state, by part and name, whole.
using TrainedState = std::map<std::pair<std::string, std::string>, std::vector<double>>;

// Trains to the end, from the beginning and with checkpoints, or from a checkpoint and without.
TrainedState train_all(RunSpec spec, const std::filesystem::path& folder, const std::filesystem::path& from = {});

// The largest relative error of any weight tensor.
double distance(const TrainedState& a, const TrainedState& b);

}  // namespace lockstep::tests
