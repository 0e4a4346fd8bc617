// lockstep train: trains what a run file says.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "spec/run/run_spec.h"

namespace CLI {
class App;
}

namespace lockstep {

void add_train(CLI::App& app, std::function<int()>& chosen);

// What the arguments of a training say, for a command that has others train (cli/launch.h).
struct OrderedTraining {
  std::filesystem::path folder;
  int ranks = 1;
  bool resumes = false;       // --resume was given
  bool resumes_own = false;   // of the folder itself
  bool names_folder = false;  // --out was given
  std::vector<std::string> stop_signals = {};
  RunSpec spec = {};
};
// Gives a command the options of a training. What is returned reads them once they are parsed: UserError as train's.
using TrainingOrder = std::function<OrderedTraining()>;
TrainingOrder add_training_order(CLI::App& command);

}  // namespace lockstep
