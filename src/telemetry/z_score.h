// How unusual a value is among the last hundred before it.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

namespace lockstep {

class ZScore {
 public:
  static constexpr int kWindow = 100, kFewest = 10;

  // The value's distance from the mean of the values before, in their standard deviations, and remembers the value.
  // Nothing while fewer than kFewest are known, for a value that is not finite, or when all were equal.
  std::optional<double> add(double value) {
    if (!std::isfinite(value)) return std::nullopt;
    std::optional<double> z;
    if (count_ >= kFewest) {
      double sum = 0, squares = 0;
      for (int i = 0; i < count_; ++i) sum += last_[i];
      const double mean = sum / count_;
      for (int i = 0; i < count_; ++i) squares += (last_[i] - mean) * (last_[i] - mean);
      const double deviation = std::sqrt(squares / (count_ - 1));
      if (deviation > 0) z = (value - mean) / deviation;
    }
    last_[next_] = value;
    next_ = (next_ + 1) % kWindow;
    if (count_ < kWindow) ++count_;
    return z;
  }

 private:
  std::array<double, kWindow> last_{};
  int count_ = 0, next_ = 0;
};

}  // namespace lockstep
