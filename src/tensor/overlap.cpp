#include "tensor/overlap.h"

#include <algorithm>

namespace lockstep {

namespace {

// One dim of both views: a step along it, in bytes, and how many steps there are.
struct Dim {
  std::int64_t step, steps;
};

std::int64_t step_of(const ConstTensor& t, int dim) { return t.stride(dim) * size_of(t.dtype()); }
std::int64_t row_bytes(const ConstTensor& t) { return (t.dims() == 0 ? 1 : t.dim(-1)) * size_of(t.dtype()); }

// From the first byte of the view to past its last.
std::int64_t span_of(const ConstTensor& t) {
  std::int64_t bytes = row_bytes(t);
  for (int i = 0; i + 1 < t.dims(); ++i) bytes += (t.dim(i) - 1) * step_of(t, i);
  return bytes;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Whether a row of one view can be between `low` and `high` bytes (both excluded) after a row of the other, the first
// two rows being `distance` apart and the dims from `at` on free. Only steps that the later dims can make up for are
// followed: one or two, where dims nest.
bool can_meet(const std::array<Dim, Shape::kMaxDims>& dims, int at, int count, std::int64_t distance, std::int64_t low,
              std::int64_t high) {
  if (at == count) return distance > low && distance < high;
  std::int64_t reach = 0;
  for (int i = at + 1; i < count; ++i) reach += dims[i].step * dims[i].steps;
  const auto [step, steps] = dims[at];
  const std::int64_t first = std::max(-steps, floor_div(low - distance - reach, step) + 1);
  const std::int64_t last = std::min(steps, floor_div(high - distance + reach - 1, step));
  for (std::int64_t n = first; n <= last; ++n)
    if (can_meet(dims, at + 1, count, distance + n * step, low, high)) return true;
  return false;
}

}  // namespace

bool same_view(const ConstTensor& a, const ConstTensor& b) {
  if (a.raw() != b.raw() || a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int i = 0; i < a.dims(); ++i)
    if (a.dim(i) > 1 && a.stride(i) != b.stride(i)) return false;
  return true;
}

bool apart(const ConstTensor& a, const ConstTensor& b) {
  if (!a.raw() || !b.raw() || a.elements() == 0 || b.elements() == 0) return true;
  const auto *from = static_cast<const char*>(a.raw()), *to = static_cast<const char*>(b.raw());
  if (from + span_of(a) <= to || to + span_of(b) <= from) return true;
  std::array<Dim, Shape::kMaxDims> dims{};
  int count = 0;
  for (int i = 0; i + 1 < a.dims(); ++i) {
    if (a.dim(i) == 1) continue;
    if (step_of(a, i) != step_of(b, i)) return false;
    if (step_of(a, i) > 0) dims[count++] = {step_of(a, i), a.dim(i) - 1};
  }
  return !can_meet(dims, 0, count, to - from, -row_bytes(b), row_bytes(a));
}

}  // namespace lockstep
