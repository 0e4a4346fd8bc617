// A curve in few points, of which none hides a spike.
//
// Points are grouped by step / width, where width is the least power of two that gives few enough groups: so a group
// keeps its points while the curve grows. Each group keeps its smallest and its largest value and its first unknown one
// (NaN), in their order; the first and the last point of the curve are always kept. A curve of at most `most` points is
// kept whole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

inline constexpr std::size_t kMostCurvePoints = 2000;

struct CurvePoint {
  std::int64_t step = 0;  // not below the one before
  double value = 0;
  double time = 0;

  bool operator==(const CurvePoint&) const = default;
};

std::vector<CurvePoint> downsample(std::span<const CurvePoint> curve, std::size_t most = kMostCurvePoints);

}  // namespace lockstep
