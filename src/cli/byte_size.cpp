#include "cli/byte_size.h"

#include <charconv>
#include <utility>

#include "base/integers.h"

namespace lockstep {

std::optional<std::int64_t> parse_byte_size(std::string_view text) {
  std::int64_t unit = 1, value = 0;
  for (const auto& [name, shift] : {std::pair{"KiB", 10}, std::pair{"MiB", 20}, std::pair{"GiB", 30}})
    if (text.ends_with(name)) {
      text.remove_suffix(3);
      unit = std::int64_t{1} << shift;
      break;
    }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return checked_mul(value, unit);
}

}  // namespace lockstep
