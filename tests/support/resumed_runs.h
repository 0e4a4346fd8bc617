// Training runs over thread ranks from a beginning or a checkpoint, and all they hold at the end, put together.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "spec/run/run_spec.h"

namespace lockstep::tests {

constexpr std::int64_t kSavedStep = 2, kAllSteps = 4;

// A small run that clips, saves after kSavedStep steps and ends after kAllSteps.
RunSpec resumed_run(const ModelSpec& model, const LayoutSpec& layout);

// Every logical tensor of the state, by part and name, whole.
using TrainedState = std::map<std::pair<std::string, std::string>, std::vector<double>>;

// Trains to the end, from the beginning and with checkpoints, or from a checkpoint and without.
TrainedState train_all(RunSpec spec, const std::filesystem::path& folder, const std::filesystem::path& from = {});

// Reads a checkpoint and saves what it has read, in a folder of its own.
void resave(const RunSpec& spec, const std::filesystem::path& folder, const std::filesystem::path& from);

// Saved in each of the layouts, the run goes on in every one of them as it would have gone on where it was: to the bit
// in the same one, to 1e-11 in others. In fp64; samples of 12 tokens.
void expect_each_goes_on_from_each(const std::string& name, const ModelSpec& model,
                                   const std::vector<LayoutSpec>& layouts);

// The largest relative error of any weight tensor.
double distance(const TrainedState& a, const TrainedState& b);

}  // namespace lockstep::tests
