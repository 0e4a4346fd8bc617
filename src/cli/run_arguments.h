// The arguments that name a run: RUN.toml or the built-in example, settings over it, and how it is laid out.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace lockstep {

struct RunArguments {
  std::string file;
  std::string text;  // in place of the file's: the run file that a checkpoint holds
  std::vector<std::string> sets;
  std::string resumed = {};  // a run or checkpoint that is resumed and whose model the run has; "auto": its own folder

  void add_to(CLI::App& command);
  RunSpec read() const;
};

// --ranks N, which is layout.dp, or --layout, the whole layout in place of the file's.
struct LayoutArguments {
  std::string layout;
  int ranks = 0;  // 0: as the run file says

  void add_to(CLI::App& command, int most_ranks, const std::string& usual_ranks);
  RunSpec read(RunArguments arguments) const;
};

}  // namespace lockstep
