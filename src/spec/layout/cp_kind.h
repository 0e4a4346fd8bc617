// How context-parallel ranks attend: by ring attention, by Ulysses, or by both at once.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// The two factors of cp: ranks that pass keys and values around a ring, times ranks that exchange heads (Ulysses).
struct ContextFactors {
  std::int64_t ring, heads;
  bool operator==(const ContextFactors&) const = default;
};

// `cp_kind` of a layout: "ring", "ulysses", or the two factors by name, as in "2x3".
struct CpKind {
  enum class Form { ring, ulysses, factors };
  Form form = Form::ring;
  ContextFactors named{};  // Form::factors alone; {0, 0} otherwise

  static constexpr CpKind of_factors(std::int64_t ring, std::int64_t heads) { return {Form::factors, {ring, heads}}; }

  // Nothing where the text is not one of the three; leading zeros of a factor are not kept.
  static std::optional<CpKind> parse(std::string_view text);
  std::string text() const;
  static constexpr std::string_view kRemedy =
      "use \"ring\", \"ulysses\", or two factors of cp, ranks of a ring times ranks that exchange heads, as in \"2x2\"";

  // Of cp ranks: "ring" is cp x 1, "ulysses" 1 x cp. Named factors are as they are, whatever cp is.
  constexpr ContextFactors factors(std::int64_t cp) const {
    return form == Form::factors ? named : form == Form::ring ? ContextFactors{cp, 1} : ContextFactors{1, cp};
  }
  bool operator==(const CpKind&) const = default;
};

inline constexpr CpKind kRing{}, kUlysses{CpKind::Form::ulysses};

}  // namespace lockstep
