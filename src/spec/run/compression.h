// How much of a message is sent: all of it, or fewer bytes that stand for it ([sync] compress and its kin).
//
// What each form keeps is defined where it is made (parallel/compression.h); here is its name and its number.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct Compression {
  enum class Kind {
    none,
    bf16,    // every element, rounded to 16 bits
    int8,    // every element in 8 bits, with a scale per block
    onebit,  // every element's sign, with two scales per block
    topk,    // the elements of largest magnitude, with their indices
  };
  Kind kind = Kind::none;
  double share = 0;  // topk: of the elements, above 0 and below 1

  // "none", "bf16", "int8", "onebit", or "topk:0.01".
  static std::optional<Compression> parse(std::string_view text);
  std::string text() const;
  static constexpr std::string_view kRemedy =
      "use \"none\", \"bf16\", \"int8\", \"onebit\", or \"topk:SHARE\" with a share above 0 and below 1, as in "
      "\"topk:0.01\"";

  explicit operator bool() const { return kind != Kind::none; }
  bool operator==(const Compression&) const = default;
};

}  // namespace lockstep
