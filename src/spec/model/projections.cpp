#include "spec/model/projections.h"

namespace lockstep {

std::vector<Projection> projections_of(const ModelSpec& s) {
  const std::int64_t C = s.width, F = s.ffn_width, q = s.heads * s.head_width, kv = s.kv_heads * s.head_width;
  if (s.family == Family::gpt2)
    return {{"attn.c_attn", C, q + 2 * kv}, {"attn.c_proj", q, C}, {"mlp.c_fc", C, F}, {"mlp.c_proj", F, C}};
  std::vector<Projection> all{
      {"self_attn.q_proj", C, q}, {"self_attn.k_proj", C, kv}, {"self_attn.v_proj", C, kv}, {"self_attn.o_proj", q, C}};
  if (s.mlp == MlpKind::swiglu) all.push_back({"mlp.gate_proj", C, F});
  all.push_back({"mlp.up_proj", C, F});
  all.push_back({"mlp.down_proj", F, C});
  return all;
}

std::int64_t lora_parameters(const ModelSpec& spec, const LoraSpec& lora) {
  std::int64_t widths = 0;
  for (const Projection& p : projections_of(spec))
    if (lora.adapts(p.name)) widths += p.in + p.out;
  return spec.layers * lora.rank * widths;
}

}  // namespace lockstep
