#include "kernels/table_rows.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

// Of a table, only the rows that are listed move.
void gather_rows(const GatherRowsArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, 0, {a.y, a.rows}, {a.y});
}

void scatter_rows(const ScatterRowsArgs& a, lockstep::Stream& stream) {
  count(stream, {.kind = KernelKind::elementwise, .written = a.x.bytes()}, {a.x, a.rows}, {});
}

}  // namespace lockstep::meta
