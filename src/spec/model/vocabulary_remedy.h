// What helps where data has more token ids than the model's vocabulary.
#pragma once
#include <cstdint>
#include <string>

#include "spec/run/run_spec.h"

namespace lockstep {

// A vocabulary can be made larger only where the weights are new.
std::string vocabulary_remedy(const RunSpec& spec, std::int64_t needed);

}  // namespace lockstep
