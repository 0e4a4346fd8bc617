#include "pictures/plot_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>

#include "base/error.h"
#include "pictures/timeline_grid.h"

namespace lockstep {

namespace {

struct Prefix {
  double size;
  std::string_view name;
};
constexpr Prefix kTimes[] = {{1e-9, " ns"}, {1e-6, " µs"}, {1e-3, " ms"}, {1, " s"}};
constexpr Prefix kBytes[] = {{1, " B"},        {0x1p10, " KiB"}, {0x1p20, " MiB"},
                             {0x1p30, " GiB"}, {0x1p40, " TiB"}, {0x1p50, " PiB"}};
constexpr Prefix kShare{0.01, " %"}, kPlain{1, ""};

Prefix prefix_of(PlotAxis::Unit unit, double largest) {
  if (unit == PlotAxis::Unit::number) return kPlain;
  if (unit == PlotAxis::Unit::share) return kShare;
  const std::span<const Prefix> all = unit == PlotAxis::Unit::seconds ? std::span<const Prefix>(kTimes) : kBytes;
  const auto above = std::ranges::upper_bound(all, std::abs(largest) * (1 + 1e-9), {}, &Prefix::size);
  return above == all.begin() ? all.front() : *std::prev(above);
}

// To six digits, thousands set apart.
std::string number_text(double value) {
  std::string text = fmt::format("{:.6g}", value);
  if (text.find_first_not_of("-0123456789") != std::string::npos) return text;
  const std::size_t sign = text[0] == '-', digits = text.size() - sign;
  for (std::size_t at = 3; at < digits; at += 3) text.insert(sign + digits - at, ",");
  return text;
}

double log_share(double value, double low, double high) { return std::log(value / low) / std::log(high / low); }

}  // namespace

std::string plot_text(PlotAxis::Unit unit, double value, double beside) {
  if (value == 0) return "0";
  const auto [size, name] = prefix_of(unit, beside);
  return number_text(value / size).append(name);
}

PlotScale::PlotScale(const PlotAxis& axis, double low, double high) : axis_(axis), low_(low), high_(high) {
  LOCKSTEP_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, "axis {} from {} to {}", axis.name, low,
                 high);
  if (axis.scale == PlotAxis::Scale::linear) {
    if (axis.from_zero) low_ = std::min(low_, 0.0), high_ = std::max(high_, 0.0);
    const double room = high_ > low_ ? 0.04 * (high_ - low_) : low_ != 0 ? 0.1 * std::abs(low_) : 1;
    const bool up_from_zero = axis.from_zero && low_ == 0;
    if (!up_from_zero) low_ -= room;
    high_ += room;
  } else {
    LOCKSTEP_CHECK(low > 0, "axis {} is logarithmic and has the value {}", axis.name, low);
    const double room = high > low ? std::pow(high / low, 0.04) : 1.5;
    low_ /= room, high_ *= room;
  }
  LOCKSTEP_CHECK(std::isfinite(high_ - low_) && high_ > low_, "axis {} from {} to {}", axis.name, low, high);
}

double PlotScale::at(double value) const {
  return axis_.scale == PlotAxis::Scale::linear ? (value - low_) / (high_ - low_) : log_share(value, low_, high_);
}

std::vector<double> PlotScale::linear_values(int most) const {
  // In the unit that is written: of bytes, 1.5 GiB is round and 1.5e9 is not.
  const double size = prefix_of(axis_.unit, std::max(std::abs(low_), std::abs(high_))).size;
  const double low = low_ / size, high = high_ / size;
  double interval = round_interval((high - low) / most);
  while (std::floor(high / interval) - std::ceil(low / interval) >= most) interval = round_interval(interval * 1.1);
  std::vector<double> values;
  for (double n = std::ceil(low / interval); n <= high / interval; ++n) values.push_back(n * interval * size);
  return values;
}

// The most of all multiples of powers of ten, 1, 2 and 5 times them, and the powers alone, that there is room for.
std::vector<double> PlotScale::decade_values(int most) const {
  const int first = static_cast<int>(std::floor(std::log10(low_))),
            last = static_cast<int>(std::ceil(std::log10(high_)));
  const auto collect = [&](std::initializer_list<int> digits, int stride) {
    std::vector<double> values;
    for (int power = first; power <= last; ++power)
      for (const int digit : digits)
        if (const double value = digit * std::pow(10.0, power); value >= low_ && value <= high_ && power % stride == 0)
          values.push_back(value);
    return values;
  };
  for (const auto digits : {std::initializer_list<int>{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5}})
    if (auto values = collect(digits, 1); std::ssize(values) <= most) return values;
  for (int stride = 1;; ++stride)
    if (auto values = collect({1}, stride); std::ssize(values) <= most) return values;
}

std::vector<double> PlotScale::binary_values(int most) const {
  const int first = static_cast<int>(std::ceil(std::log2(low_))), last = static_cast<int>(std::floor(std::log2(high_)));
  const int stride = std::max(1, (last - first + most) / most);
  std::vector<double> values;
  for (int power = first; power <= last; power += stride) values.push_back(std::exp2(power));
  return values;
}

std::vector<double> PlotScale::round_values(int most) const {
  if (axis_.scale == PlotAxis::Scale::linear) return linear_values(most);
  const bool binary = axis_.scale == PlotAxis::Scale::log2 || axis_.unit == PlotAxis::Unit::bytes;
  std::vector<double> values = binary ? binary_values(most) : decade_values(most);
  return values.size() >= 2 ? values : linear_values(most);  // a range that is narrower than a factor of two
}

PlotScale::Marks PlotScale::marks(int most) const {
  Marks marks;
  const double largest = std::max(std::abs(low_), std::abs(high_));
  for (const double value : round_values(most))
    marks.emplace_back(value, plot_text(axis_.unit, value, axis_.scale == PlotAxis::Scale::linear ? largest : value));
  return marks;
}

std::string PlotScale::text(double value) const {
  if (value == 0) return "0";
  const auto [size, name] = prefix_of(axis_.unit, value);
  const double digits = std::pow(10, 3 - std::floor(std::log10(std::abs(value / size))));
  return number_text(std::round(value / size * digits) / digits).append(name);
}

}  // namespace lockstep
