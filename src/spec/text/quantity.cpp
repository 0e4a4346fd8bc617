#include "spec/text/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

namespace lockstep {

namespace {

struct QuantityUnit {
  std::string_view name;
  double factor;
  double divisor = 1;  // in place of a factor below 1, which a double does not hold: 10us is 10 / 1e6, the double 1e-5
};

// A name comes before those that it ends with, and the usual name of a unit before others.
constexpr QuantityUnit kSizeUnits[] = {
    {"PiB", 0x1p50}, {"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}, {"PB", 1e15},
    {"TB", 1e12},    {"GB", 1e9},     {"MB", 1e6},     {"KB", 1e3},     {"B", 1},
};
constexpr QuantityUnit kRateUnits[] = {
    {"PB/s", 1e15},    {"TB/s", 1e12},       {"GB/s", 1e9},       {"MB/s", 1e6},       {"KB/s", 1e3},
    {"PiB/s", 0x1p50}, {"TiB/s", 0x1p40},    {"GiB/s", 0x1p30},   {"MiB/s", 0x1p20},   {"KiB/s", 0x1p10},
    {"B/s", 1},        {"Tbit/s", 1e12 / 8}, {"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8},
};
constexpr QuantityUnit kOperationUnits[] = {
    {"PF", 1e15},      {"TF", 1e12},      {"GF", 1e9},      {"MF", 1e6},
    {"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"MFLOP/s", 1e6},
};
constexpr QuantityUnit kTimeUnits[] = {{"ms", 1, 1e3}, {"us", 1, 1e6}, {"ns", 1, 1e9}, {"s", 1}};

std::span<const QuantityUnit> units_of(QuantityKind kind) {
  switch (kind) {
    case QuantityKind::size:
      return kSizeUnits;
    case QuantityKind::rate:
      return kRateUnits;
    case QuantityKind::operations:
      return kOperationUnits;
    case QuantityKind::time:
      return kTimeUnits;
    default:
      return {};
  }
}

}  // namespace

std::optional<double> parse_quantity(std::string_view text, QuantityKind kind) {
  for (const auto& [name, factor, divisor] : units_of(kind)) {
    if (!text.ends_with(name)) continue;
    const std::string_view digits = text.substr(0, text.size() - name.size());
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value * factor))
      return std::nullopt;
    return value * factor / divisor;
  }
  return std::nullopt;
}

std::string quantity_text(double value, QuantityKind kind) {
  const std::string plain = fmt::format("{}", value);
  constexpr std::size_t kMostDigits = 8;  // of a number that somebody wrote, or rounded before
  std::string best = plain;
  std::size_t fewest = 2 * kMostDigits;
  for (const auto& [name, factor, divisor] : units_of(kind)) {
    if (name.ends_with("bit/s")) continue;  // read, and not written: one file, one unit of a rate
    const std::string digits = fmt::format("{}", value * divisor / factor), text = digits + std::string(name);
    const bool usual = value * divisor >= factor && value * divisor < 1000 * factor;  // 2.4GB/s, not 2400MB/s
    const std::size_t length = digits.size() + (usual ? 0 : 2);
    if (digits.size() > kMostDigits || length >= fewest || digits.find('e') != std::string::npos) continue;
    if (parse_quantity(text, kind) != value) continue;  // the division or the product has rounded
    best = text;
    fewest = length;
  }
  return best;
}

std::string_view quantity_example(QuantityKind kind) {
  switch (kind) {
    case QuantityKind::size:
      return "a size as in 80GiB";
    case QuantityKind::rate:
      return "a rate as in 25GB/s";
    case QuantityKind::operations:
      return "operations per second as in 312TF";
    case QuantityKind::time:
      return "a time as in 10us";
    default:
      return "a number";
  }
}

}  // namespace lockstep
