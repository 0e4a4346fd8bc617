#include "spec/model/model_flops.h"

#include "spec/model/projections.h"

namespace lockstep {

std::int64_t matmul_parameters(const ModelSpec& s) {
  const std::int64_t table = s.vocabulary * s.width;
  const std::int64_t positions = s.positions == PositionKind::learned ? s.max_positions * s.width : 0;
  return parameter_count(s) - positions - (s.tied ? 0 : table);  // a tied table is the head: counted once
}

double model_flops(const ModelSpec& s, std::int64_t B, std::int64_t T) {
  return model_flops(s, B, SampleWork::of_sequence(T));
}

double model_flops(const ModelSpec& s, std::int64_t B, const SampleWork& sample) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  return 6 * d(matmul_parameters(s)) * d(B) * sample.tokens +
         6 * d(s.layers) * d(s.heads) * d(s.head_width) * sample.squares * d(B);
}

double model_flops(const ModelSpec& s, std::int64_t B, const SampleWork& sample, const LoraSpec& lora) {
  const double whole = model_flops(s, B, sample);
  if (!lora) return whole;
  const double tokens = static_cast<double>(B) * sample.tokens;
  return whole - 2 * static_cast<double>(matmul_parameters(s)) * tokens +
         6 * static_cast<double>(lora_parameters(s, lora)) * tokens;
}

}  // namespace lockstep
