// Rotary positions as a Hugging Face config.json states them, in its older and its newer form.
//
// Older: `rope_theta` beside `rope_scaling` {"rope_type" or "type", …}. Newer: `rope_parameters` with the base inside.
// A file may hold both (tools add the newer to the older); then they must agree. Kinds: "default" and "llama3".
#pragma once
#include "spec/model/model_spec.h"
#include "spec/text/json_fields.h"

namespace lockstep {

// Sets the spec's rope_theta and rope_scaling; what the file leaves out keeps the spec's value.
void read_hf_rope(JsonFields& fields, ModelSpec& spec);

}  // namespace lockstep
