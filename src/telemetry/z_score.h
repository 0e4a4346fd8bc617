// How unusual a value is among the last hundred before it.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

class ZScore {
 public:
  static constexpr int kWindow = 100, kFewest = 10;

  ZScore() = default;
  // That remembers these, the oldest first, at most kWindow.
  explicit ZScore(std::span<const double> values) {
    for (const double value : values) remember(value);
  }

  // The value's distance from the mean of the values before, in their standard deviations, and remembers the value.
  // Nothing while fewer than kFewest are known, for a value that is not finite, or when all were equal.
  std::optional<double> add(double value) {
    const std::optional<double> z = of(value);
    remember(value);
    return z;
  }

  // The same, and forgets the value.
  std::optional<double> of(double value) const {
    if (!std::isfinite(value) || count_ < kFewest) return std::nullopt;
    double sum = 0, squares = 0;
    for (const double one : values()) sum += one;
    const double mean = sum / count_;
    for (const double one : values()) squares += (one - mean) * (one - mean);
    const double deviation = std::sqrt(squares / (count_ - 1));
    if (!(deviation > 0)) return std::nullopt;
    return (value - mean) / deviation;
  }

  // What is remembered, the oldest first.
  std::vector<double> values() const {
    std::vector<double> all;
    for (int i = 0; i < count_; ++i) all.push_back(last_[(next_ + kWindow - count_ + i) % kWindow]);
    return all;
  }

 private:
  void remember(double value) {
    if (!std::isfinite(value)) return;
    last_[next_] = value;
    next_ = (next_ + 1) % kWindow;
    if (count_ < kWindow) ++count_;
  }

  std::array<double, kWindow> last_{};
  int count_ = 0, next_ = 0;
};

}  // namespace lockstep
