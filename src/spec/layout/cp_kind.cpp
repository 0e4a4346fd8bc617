#include "spec/layout/cp_kind.h"

#include <fmt/format.h>

#include <charconv>

#include "spec/model/model_spec.h"

namespace lockstep {

std::optional<CpKind> CpKind::parse(std::string_view text) {
  for (const CpKind& kind : {kRing, kUlysses})
    if (text == kind.text()) return kind;
  const std::size_t times = text.find('x');
  if (times == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view digits) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc{} && end == digits.data() + digits.size() && value <= kMaxIndex ? value : 0;
  };
  const CpKind kind = of_factors(number(text.substr(0, times)), number(text.substr(times + 1)));
  if (kind.named.ring < 1 || kind.named.heads < 1) return std::nullopt;
  return kind;
}

std::string CpKind::text() const {
  switch (form) {
    case Form::ring:
      return "ring";
    case Form::ulysses:
      return "ulysses";
    case Form::factors:
      break;
  }
  return fmt::format("{}x{}", named.ring, named.heads);
}

}  // namespace lockstep
