// The tensors a model needs, found in the files of a Hugging Face model.
//
// The files together must hold every tensor asked for, with its shape and a float type, and no tensor that is not asked
// for: a tensor that nothing reads belongs to another model. Common variants are understood:
//   - GPT-2's names without the prefix "transformer.", as the hub's own GPT-2 has them;
//   - buffers that are no parameters, "….attn.bias", "….attn.masked_bias" and "….rotary_emb.inv_freq": left unread;
//   - "lm_head.weight" beside a tied model's embedding, where it must be the embedding's bytes.
//
// Failure: UserError (bad_input_file) naming the file and the tensor.
#pragma once
#include <span>
#include <vector>

#include "checkpoint/safetensors.h"
#include "spec/model/parameters.h"

namespace lockstep {

// Views into the files, in the order asked for; the files outlive them. `where` names them all, for a tensor that is in
// none.
std::vector<ConstTensor> find_hf_tensors(std::span<const SafetensorsFile* const> files, const std::string& where,
                                         const std::vector<LogicalTensor>& wanted);
std::vector<ConstTensor> find_hf_tensors(const SafetensorsFile& file, const std::vector<LogicalTensor>& wanted);

}  // namespace lockstep
