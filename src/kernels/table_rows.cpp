#include "kernels/table_rows.h"

#include "kernels/operands.h"

namespace lockstep {

namespace {

void check_listed(const char* op, const ConstTensor& table, const char* name, const ConstTensor& some,
                  const ConstTensor& rows, const Stream& stream) {
  LOCKSTEP_CHECK(table.dims() == 2 && some.dims() == 2, "{}: table is {}, {} is {}", op, table.shape(), name,
                 some.shape());
  Operands(op, stream)
      .floats("table", table)
      .have_flat("table", table, {table.dim(0), table.dim(1)}, table.dtype())
      .have_flat(name, some, {some.dim(0), table.dim(1)}, table.dtype())
      .have_flat("rows", rows, {some.dim(0)}, DType::i32);
}

}  // namespace

void gather_rows(const GatherRowsArgs& a, Stream& stream) {
  check_listed("gather_rows", a.table, "y", a.y, a.rows, stream);
  dispatch(cpu::gather_rows, cuda::gather_rows, meta::gather_rows, a, stream);
}

void scatter_rows(const ScatterRowsArgs& a, Stream& stream) {
  check_listed("scatter_rows", a.table, "x", a.x, a.rows, stream);
  dispatch(cpu::scatter_rows, cuda::scatter_rows, meta::scatter_rows, a, stream);
}

}  // namespace lockstep
