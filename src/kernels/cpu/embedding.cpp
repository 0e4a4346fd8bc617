#include "kernels/embedding.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

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

// The row of the table at hand that an index names; none (-1) where a part does not hold it.
struct Held {
  std::int64_t first, rows;
  std::int64_t operator()(std::int32_t index) const {
    const std::int64_t row = index - first;
    return row >= 0 && row < rows ? row : -1;
  }
};

// Work is split by columns: every column adds its tokens in their order, on whatever thread.
constexpr std::int64_t kColumns = 256;
template <class Body>
void each_column_range(Stream& stream, std::int64_t width, Body&& body) {
  stream.workers().each((width + kColumns - 1) / kColumns, [&](std::int64_t item, int) {
    body(item * kColumns, std::min(kColumns, width - item * kColumns));
  });
}

// Into a table of the accumulator type: token after token, wherever its row is.
template <class S>
void add_to_rows(const EmbeddingBackwardArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t width = a.dy.dim(2), tokens = a.dy.dim(0) * a.dy.dim(1), count = a.indices.elements();
  const std::int32_t* indices = a.indices.data<std::int32_t>();
  const auto dtable = rows<T>(a.dtable);
  const S* dy = a.dy.data<S>();
  const Held held{a.first, a.dtable.dim(0)};
  each_column_range(stream, width, [&](std::int64_t begin, std::int64_t columns) {
    if (!a.accumulate)
      for (std::int64_t row = 0; row < a.dtable.dim(0); ++row) std::fill_n(dtable[row] + begin, columns, T(0));
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::int64_t row = held(indices[token % count]);
      if (row < 0) continue;
      T* out = dtable[row] + begin;
      const S* in = dy + token * width + begin;
      for_vectors<T>(columns,
                     [&](std::int64_t i, auto load, auto store) { store(out + i, load(out + i) + load(in + i)); });
    }
  });
}

// Into a table of 16 bits: row after row, the sum held in the accumulator type until the row's last token is in it. The
// tokens of each row come from a counting sort, which keeps their order, in the first worker's scratch; a table and
// batch beyond a million rows and tokens take memory of their own for it.
template <class S>
void sum_each_row(const EmbeddingBackwardArgs& a, Stream& stream) {
  using T = Compute<S>;
  const std::int64_t width = a.dy.dim(2), tokens = a.dy.dim(0) * a.dy.dim(1), count = a.indices.elements();
  const std::int32_t* indices = a.indices.data<std::int32_t>();
  const auto dtable = rows<S>(a.dtable);
  const S* dy = a.dy.data<S>();
  const Held held{a.first, a.dtable.dim(0)};
  const std::int64_t all_ends = a.dtable.dim(0) + 1, needed = all_ends + tokens;
  LOCKSTEP_CHECK(needed <= std::numeric_limits<std::int32_t>::max(), "{} rows and tokens", needed);
  std::vector<std::int32_t> own;
  if (needed * 4 > kScratchBytes) own.resize(static_cast<std::size_t>(needed));
  std::int32_t* const room = own.empty() ? static_cast<std::int32_t*>(stream.scratch(0)) : own.data();
  const std::span ends(room, static_cast<std::size_t>(all_ends)),
      sorted(room + all_ends, static_cast<std::size_t>(tokens));
  std::ranges::fill(ends, 0);
  for (std::int64_t token = 0; token < tokens; ++token)
    if (const std::int64_t row = held(indices[token % count]); row >= 0) ++ends[row + 1];
  for (std::size_t row = 1; row < ends.size(); ++row) ends[row] += ends[row - 1];
  for (std::int64_t token = 0; token < tokens; ++token)
    if (const std::int64_t row = held(indices[token % count]); row >= 0)
      sorted[ends[row]++] = static_cast<std::int32_t>(token);  // ends[row] is its end now
  each_column_range(stream, width, [&](std::int64_t begin, std::int64_t columns) {
    T sums[kColumns];
    std::int64_t next = 0;
    for (std::int64_t row = 0; row < a.dtable.dim(0); ++row) {
      S* out = dtable[row] + begin;
      if (next == ends[row]) {
        if (!a.accumulate) std::fill_n(out, columns, S(0.0f));
        continue;
      }
      for (std::int64_t i = 0; i < columns; ++i) sums[i] = a.accumulate ? static_cast<T>(out[i]) : T(0);
      for (; next < ends[row]; ++next) {
        const S* in = dy + sorted[next] * width + begin;
        for_vectors<T>(columns,
                       [&](std::int64_t i, auto load, auto store) { store(sums + i, load(sums + i) + load(in + i)); });
      }
      for_vectors<T>(columns, [&](std::int64_t i, auto load, auto store) { store(out + i, load(sums + i)); });
    }
  });
}
}  // namespace

void embedding_forward(const EmbeddingForwardArgs& a, lockstep::Stream& stream) {
  if (!a.part) check_indices("embedding_forward", a.tokens, a.table.dim(0));
  if (a.positions) check_indices("embedding_forward", a.positions, a.position_table.dim(0));
  with_float(a.y.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const std::int64_t length = a.positions ? a.positions.elements() : 1, width = a.y.dim(2);  // or one for all
    const std::int32_t* tokens = a.tokens.data<std::int32_t>();
    const std::int32_t* positions = a.positions ? a.positions.data<std::int32_t>() : nullptr;
    const auto table = rows<S>(a.table), position_table = rows<S>(a.position_table);
    S* y = a.y.data<S>();
    const Held held{a.first, a.table.dim(0)};
    each_row(Stream::of(stream), a.tokens.elements(), width, [&](std::int64_t row, int) {
      const std::int64_t at = held(tokens[row]);
      S* out = y + row * width;
      if (at < 0) std::fill_n(out, width, S(0.0f));  // another rank's
      const S* from = at >= 0 ? table[at] : out;
      if (!positions) {
        if (at >= 0) std::copy_n(from, width, out);
        return;
      }
      const S* other = position_table[positions[row % length]];
      for_vectors<Compute<S>>(
          width, [&](std::int64_t i, auto load, auto store) { store(out + i, load(from + i) + load(other + i)); });
    });
  });
}

void embedding_backward(const EmbeddingBackwardArgs& a, lockstep::Stream& stream) {
  if (!a.part) check_indices("embedding_backward", a.indices, a.dtable.dim(0));
  with_float_and_result(a.dy.dtype(), a.dtable.dtype(), [&]<class S, class G>(TypeTag<S>, TypeTag<G>) {
    if constexpr (std::is_same_v<G, Compute<S>>)
      add_to_rows<S>(a, Stream::of(stream));
    else
      sum_each_row<S>(a, Stream::of(stream));
  });
}

}  // namespace lockstep::cpu
