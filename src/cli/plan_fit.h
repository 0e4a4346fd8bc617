// plan --fit: the cheapest settings under which a run fits, and why cheaper ones do not (plan/fit_search.h).
#pragma once
#include <string>

#include "spec/run/run_spec.h"

namespace lockstep {

struct FitArguments {
  bool wanted = false;
  std::string size;             // of each rank; empty: what is free here, shared by all ranks
  bool change_numbers = false;  // --allow numbers
  bool json = false;
};

// Prints it. UserError (does_not_fit) where nothing fits: what the least would need.
int show_fit(const FitArguments& arguments, RunSpec spec);

}  // namespace lockstep
