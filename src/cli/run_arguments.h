// The arguments that name a run: RUN.toml or the built-in example, and settings over it.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace lockstep {

struct RunArguments {
  std::string file;
  std::vector<std::string> sets;

  void add_to(CLI::App& command);
  RunSpec read() const;
};

}  // namespace lockstep
