#include "spec/machine/link_spec.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "base/error.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr double kSlowest = 1e5, kFastest = 1e15;  // bytes per second
constexpr double kLongest = 1;                     // seconds of latency

struct LinkUnit {
  std::string_view name;
  double factor;
};
// A name comes before those that it ends with.
constexpr LinkUnit kRates[] = {{"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8}, {"GB/s", 1e9}, {"MB/s", 1e6}};
constexpr LinkUnit kTimes[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"s", 1}};

class LinkText {
 public:
  LinkText(std::string_view text, const std::string& option) : text_(text), option_(option) {}

  LinkSpec read() const {
    const std::size_t comma = text_.find(',');
    if (comma == text_.npos || text_.find(',', comma + 1) != text_.npos) refuse(quote_text(text_), kBoth);
    std::optional<double> rate, time;
    for (const std::string_view part : {text_.substr(0, comma), text_.substr(comma + 1)}) {
      if (const auto value = in_units(part, kRates))
        set(rate, *value);
      else if (const auto seconds = in_units(part, kTimes))
        set(time, *seconds);
      else
        refuse(quote_text(part), kBoth);
    }
    if (!(*rate >= kSlowest && *rate <= kFastest))
      refuse("the bandwidth of " + quote_text(text_), "give it from 0.1MB/s to 1000000GB/s");
    if (!(*time >= 0 && *time <= kLongest)) refuse("the latency of " + quote_text(text_), "give it from 0s to 1s");
    return {.bytes_per_second = *rate, .latency_seconds = *time};
  }

 private:
  static constexpr const char* kBoth =
      "give a bandwidth (GB/s, MB/s, Gbit/s) and a latency (s, ms, us, ns), as in "
      "1GB/s,50us";

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    throw UserError(ExitCode::usage, fmt::format("{} {}", option_, what), remedy);
  }

  void set(std::optional<double>& value, double to) const {
    if (value) refuse(quote_text(text_), kBoth);  // the other one is missing
    value = to;
  }

  // Nothing where it has none of these units, or no number before it.
  static std::optional<double> in_units(std::string_view part, std::span<const LinkUnit> units) {
    for (const auto& [name, factor] : units) {
      if (!part.ends_with(name)) continue;
      const std::string_view digits = part.substr(0, part.size() - name.size());
      double value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value)) return std::nullopt;
      return value * factor;
    }
    return std::nullopt;
  }

  std::string_view text_;
  const std::string& option_;
};

}  // namespace

LinkSpec parse_link(std::string_view text, const std::string& option) { return LinkText(text, option).read(); }

std::string to_text(const LinkSpec& link) {
  const double rate = link.bytes_per_second, time = link.latency_seconds;
  const auto [shown, unit] = rate >= 1e9 ? std::pair{rate / 1e9, "GB/s"} : std::pair{rate / 1e6, "MB/s"};
  const auto [latency, of] = time >= 1e-3 ? std::pair{time * 1e3, "ms"} : std::pair{time * 1e6, "us"};
  return fmt::format("{:.6g} {} and {:.6g} {} per message", shown, unit, latency, of);
}

}  // namespace lockstep
