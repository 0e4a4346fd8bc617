// An axis of a plot: which values it spans, where its marks are, and what is written beside them.
//
// Marks are at round numbers of the axis's unit: 1, 2 or 5 times a power of ten on a linear axis, powers of ten (with
// 2 and 5 times them, or all multiples, where there is room) on a logarithmic one, powers of two on `log2` and of
// bytes.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct PlotAxis {
  enum class Scale : std::uint8_t { linear, log, log2 };
  enum class Unit : std::uint8_t {
    number,   // 0.25, 16,384, 1e+09
    seconds,  // 20 µs, 1.5 ms, 3,600 s
    bytes,    // 512 MiB, 1.5 GiB
    share,    // 0.4 is 40 %
  };
  std::string name;
  Unit unit = Unit::number;
  Scale scale = Scale::linear;
  bool from_zero = false;  // a linear axis begins at 0
};

// A value as the axis writes it, with its unit; `beside` is the largest of the values written beside it, whose prefix
// they share: "0.5 s" beside "2 s".
std::string plot_text(PlotAxis::Unit unit, double value, double beside);

// An axis for values from `low` to `high`, which may be equal. On a logarithmic axis both are above 0.
class PlotScale {
 public:
  PlotScale(const PlotAxis& axis, double low, double high);

  // Where a value is: from 0 at the axis's beginning to 1 at its end.
  double at(double value) const;

  using Marks = std::vector<std::pair<double, std::string>>;  // value and text
  Marks marks(int most) const;                                // at least 2 and at most `most`, which is at least 5
  // A value as it is written beside a point: to four digits.
  std::string text(double value) const;

 private:
  std::vector<double> round_values(int most) const;
  std::vector<double> linear_values(int most) const;
  std::vector<double> decade_values(int most) const;
  std::vector<double> binary_values(int most) const;

  PlotAxis axis_;
  double low_, high_;
};

}  // namespace lockstep
