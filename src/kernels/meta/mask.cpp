#include "kernels/mask.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

namespace {
// Which elements of the dense tensor are touched is not known here; as many as are packed.
void count_moved(lockstep::Stream& stream, const ConstTensor& packed, const ConstTensor& mask, std::int64_t written) {
  count(stream, {.kind = KernelKind::elementwise, .read = packed.bytes(), .written = written}, {mask}, {});
}
}  // namespace

void pack(const PackArgs& a, lockstep::Stream& stream) { count_moved(stream, a.packed, a.mask, a.packed.bytes()); }

void unpack(const UnpackArgs& a, lockstep::Stream& stream) { count_moved(stream, a.packed, a.mask, a.dense.bytes()); }

void keep(const KeepArgs& a, lockstep::Stream& stream) {
  count(stream, KernelKind::elementwise, 0, {a.dense, a.mask}, {a.dense});
}

}  // namespace lockstep::meta
