#include "spec/model/fp8_fit.h"

#include <fmt/format.h>

namespace lockstep {

std::string left_in_bf16(const ModelSpec& s, std::int64_t tokens, const TensorSplit& split) {
  if (tokens % 16 != 0)
    return fmt::format(
        "no product is computed in fp8: a micro-batch has {} tokens, which is no multiple of 16; all are in bf16, use "
        "another data.seq or layout.micro",
        tokens);
  const HeadSplit split_heads(s.heads, s.kv_heads, split);
  const std::int64_t heads = split_heads.queries.each * s.head_width, keys = 2 * split_heads.keys.each * s.head_width;
  const std::int64_t ffn = split.part(s.ffn_width).each, inner = s.mlp == MlpKind::swiglu ? 2 * ffn : ffn;
  std::string left;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out) {
    if (!fits_fp8(tokens, in, out)) left += fmt::format("{}{} ({} x {})", left.empty() ? "" : ", ", name, in, out);
  };
  add("queries, keys and values", s.width, heads + keys);
  add("attention's outputs", heads, s.width);
  add("feed-forward's inputs", s.width, inner);
  add("feed-forward's outputs", ffn, s.width);
  if (left.empty()) return "";
  return fmt::format("computed in bf16, since fp8 needs multiples of 16{}: {}",
                     split.size > 1 ? fmt::format(" on each of {} tp ranks", split.size) : "", left);
}

}  // namespace lockstep
