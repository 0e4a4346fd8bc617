#include "spec/machine/link_spec.h"

#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "spec/text/quantity.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

constexpr double kSlowest = 1e5, kFastest = 1e15;  // bytes per second
constexpr double kLongest = 1;                     // seconds of latency

class LinkText {
 public:
  LinkText(std::string_view text, const std::string& option) : text_(text), option_(option) {}

  LinkSpec read() const {
    const std::size_t comma = text_.find(',');
    if (comma == text_.npos || text_.find(',', comma + 1) != text_.npos) refuse(quote_text(text_), kBoth);
    std::optional<double> rate, time;
    for (const std::string_view part : {text_.substr(0, comma), text_.substr(comma + 1)}) {
      if (const auto value = parse_quantity(part, QuantityKind::rate))
        set(rate, *value);
      else if (const auto seconds = parse_quantity(part, QuantityKind::time))
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
