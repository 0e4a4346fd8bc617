#include "telemetry/number_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace lockstep {

namespace {
// Three significant digits, in the largest unit that leaves at least one before the point.
std::string scaled(double value, double base, const std::array<const char*, 7>& units) {
  std::size_t unit = 0;
  while (std::abs(value) >= base * 0.99995 && unit + 1 < units.size()) value /= base, ++unit;
  const int decimals = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}
}  // namespace

std::string byte_text(std::int64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"});
}

std::string count_text(double count) { return scaled(count, 1000, {"", "K", "M", "B", "T", "P", "E"}); }

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-:--";
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string seconds_text(double seconds) {
  const auto three = [](double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0); };
  if (seconds < 1e-3) return three(seconds * 1e6) + " us";
  if (seconds < 1) return three(seconds * 1e3) + " ms";
  if (seconds < 600) return three(seconds) + " s";
  return seconds < 7200 ? three(seconds / 60) + " min" : three(seconds / 3600) + " h";
}

std::string grouped_digits(std::int64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    out += digits[i];
    const std::size_t left = digits.size() - 1 - i;
    if (left > 0 && left % 3 == 0 && digits[i] != '-') out += ',';
  }
  return out;
}

}  // namespace lockstep
