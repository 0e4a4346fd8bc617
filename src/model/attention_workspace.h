// The slot in which attention's backward has the room that kernels ask for.
#pragma once
#include <algorithm>

#include "base/integers.h"
#include "kernels/attention.h"
#include "model/build.h"

namespace lockstep {

// Of so many tokens against as many, under the causal mask or not; -1 where nothing is asked for. Attention is the
// second half of a block's backward.
inline Slot attention_workspace_slot(const Build& b, int unit, std::int64_t tokens, std::int64_t heads,
                                     std::int64_t kv_heads, std::int64_t width) {
  std::int64_t bytes = 0;
  for (const bool causal : {true, false})
    bytes = std::max(bytes, attention_workspace(b.how.runs_on, {.B = b.B,
                                                                .T = tokens,
                                                                .S = tokens,
                                                                .H = heads,
                                                                .K = kv_heads,
                                                                .D = width,
                                                                .dtype = b.dtype,
                                                                .causal = causal,
                                                                .dropout = b.spec.attention_dropout > 0,
                                                                .deterministic = b.how.deterministic,
                                                                .documents = b.how.documents != nullptr}));
  if (bytes == 0) return -1;
  const Moment input{unit, Phase::input};
  return b.slots.add({"workspace", DType::f32, {ceil_div(bytes, 4)}, input, input, Half::second});
}

}  // namespace lockstep
