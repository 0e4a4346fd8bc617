// The tensors a model needs, found in a Hugging Face file.
//
// The file must hold every tensor asked for, with its shape and a float type, and no tensor that is not asked for: a
// name nobody reads is a model nobody meant. Failure: UserError (bad_input_file) naming the file and the tensor.
#pragma once
#include <vector>

#include "checkpoint/safetensors.h"
#include "spec/parameters.h"

namespace lockstep {

// Views into the file, in the order asked for; the file outlives them.
std::vector<ConstTensor> find_hf_tensors(const SafetensorsFile& file, const std::vector<LogicalTensor>& wanted);

}  // namespace lockstep
