#include "kernels/table_rows.h"

#include <cstring>

#include "base/error.h"
#include "kernels/cpu/rows.h"

namespace lockstep::cpu {

namespace {

// body(byte at which a listed row begins, where it begins in the table, bytes)
template <class Body>
void each_listed(Stream& stream, const ConstTensor& table, const ConstTensor& rows, const Body& body) {
  const std::int64_t V = table.dim(0), row_bytes = table.dim(1) * size_of(table.dtype());
  const auto* const listed = rows.data<std::int32_t>();
  each_row(stream, rows.elements(), table.dim(1), [&](std::int64_t i, int) {
    LOCKSTEP_CHECK(listed[i] >= 0 && listed[i] < V, "row {} of a table of {}", listed[i], V);
    body(i * row_bytes, listed[i] * row_bytes, static_cast<std::size_t>(row_bytes));
  });
}

}  // namespace

void gather_rows(const GatherRowsArgs& a, lockstep::Stream& stream) {
  char* const y = static_cast<char*>(a.y.raw());
  const char* const table = static_cast<const char*>(a.table.raw());
  each_listed(Stream::of(stream), a.table, a.rows,
              [&](std::int64_t at, std::int64_t row, std::size_t bytes) { std::memcpy(y + at, table + row, bytes); });
}

void scatter_rows(const ScatterRowsArgs& a, lockstep::Stream& stream) {
  char* const table = static_cast<char*>(a.table.raw());
  const char* const x = static_cast<const char*>(a.x.raw());
  each_listed(Stream::of(stream), a.table, a.rows,
              [&](std::int64_t at, std::int64_t row, std::size_t bytes) { std::memcpy(table + row, x + at, bytes); });
}

}  // namespace lockstep::cpu
