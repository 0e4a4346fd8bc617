#include "dashboard/downsample.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {

namespace {

// The points of one group that are kept, by their places in the curve.
void keep_of_group(std::span<const CurvePoint> curve, std::size_t begin, std::size_t end,
                   std::vector<CurvePoint>& kept) {
  std::size_t least = end, most = end, unknown = end;
  for (std::size_t i = begin; i < end; ++i) {
    const double value = curve[i].value;
    if (std::isnan(value)) {
      if (unknown == end) unknown = i;
    } else {
      if (least == end || value < curve[least].value) least = i;
      if (most == end || value > curve[most].value) most = i;
    }
  }
  std::array<std::size_t, 5> places = {least, most, unknown, end, end};
  if (begin == 0) places[3] = 0;
  if (end == curve.size()) places[4] = end - 1;
  std::ranges::sort(places);
  for (std::size_t i = 0; i < places.size() && places[i] < end; ++i)
    if (i == 0 || places[i] != places[i - 1]) kept.push_back(curve[places[i]]);
}

}  // namespace

std::vector<CurvePoint> downsample(std::span<const CurvePoint> curve, std::size_t most) {
  if (curve.size() <= most) return {curve.begin(), curve.end()};
  const auto groups = static_cast<std::int64_t>(std::max<std::size_t>(1, most / 3 - 1));  // the ends come in addition
  std::int64_t width = 1;
  while (curve.back().step / width - curve.front().step / width + 1 > groups) width *= 2;
  std::vector<CurvePoint> kept;
  kept.reserve(most);
  for (std::size_t begin = 0; begin < curve.size();) {
    std::size_t end = begin + 1;
    while (end < curve.size() && curve[end].step / width == curve[begin].step / width) ++end;
    keep_of_group(curve, begin, end, kept);
    begin = end;
  }
  return kept;
}

}  // namespace lockstep
