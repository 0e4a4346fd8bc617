#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/types.h"

namespace lockstep::cpu {

namespace {
void check_indices(const char* op, const ConstTensor& indices, std::int64_t limit) {
  const std::int32_t* p = indices.data<std::int32_t>();
  for (std::int64_t i = 0; i < indices.elements(); ++i)
    LOCKSTEP_CHECK(p[i] >= 0 && p[i] < limit, "{}: index {} at place {} of a table of {} rows", op, p[i], i, limit);
}
}  // namespace

void embedding_forward(const EmbeddingForwardArgs& a, lockstep::Stream& stream) {
  check_indices("embedding_forward", a.tokens, a.table.dim(0));
  if (a.positions) check_indices("embedding_forward", a.positions, a.position_table.dim(0));
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const std::int64_t length = a.y.dim(1), width = a.y.dim(2);
    const std::int32_t* tokens = a.tokens.data<std::int32_t>();
    const std::int32_t* positions = a.positions ? a.positions.data<std::int32_t>() : nullptr;
    const auto table = rows<S>(a.table), position_table = rows<S>(a.position_table);
    S* y = a.y.data<S>();
    each_row(Stream::of(stream), a.tokens.elements(), width, [&](std::int64_t row, int) {
      const S* from = table[tokens[row]];
      S* out = y + row * width;
      if (!positions) {
        std::copy_n(from, width, out);
        return;
      }
      const S* other = position_table[positions[row % length]];
      for_vectors<Compute<S>>(
          width, [&](std::int64_t i, auto load, auto store) { store(out + i, load(from + i) + load(other + i)); });
    });
  });
}

void embedding_backward(const EmbeddingBackwardArgs& a, lockstep::Stream& stream) {
  check_indices("embedding_backward", a.indices, a.dtable.dim(0));
  with_float(a.dy.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    using T = Compute<S>;
    const std::int64_t width = a.dy.dim(2), tokens = a.dy.dim(0) * a.dy.dim(1), count = a.indices.elements();
    const std::int32_t* indices = a.indices.data<std::int32_t>();
    const auto dtable = rows<T>(a.dtable);
    const S* dy = a.dy.data<S>();
    // Work is cut by columns: every column adds its tokens in their order, whoever adds them.
    constexpr std::int64_t kColumns = 256;
    Stream::of(stream).workers().each((width + kColumns - 1) / kColumns, [&](std::int64_t item, int) {
      const std::int64_t begin = item * kColumns, columns = std::min(kColumns, width - begin);
      if (!a.accumulate)
        for (std::int64_t row = 0; row < a.dtable.dim(0); ++row) std::fill_n(dtable[row] + begin, columns, T(0));
      for (std::int64_t token = 0; token < tokens; ++token) {
        T* out = dtable[indices[token % count]] + begin;
        const S* in = dy + token * width + begin;
        for_vectors<T>(columns,
                       [&](std::int64_t i, auto load, auto store) { store(out + i, load(out + i) + load(in + i)); });
      }
    });
  });
}

}  // namespace lockstep::cpu
