// Quantities with their units, as text: "80GiB", "25GB/s", "400Gbit/s", "312TF", "10us".
//
//   size        B, KB, MB, GB, TB, PB (powers of 1000), KiB, MiB, GiB, TiB, PiB (of 1024)
//   rate        a size and /s, or Mbit/s, Gbit/s, Tbit/s
//   operations  MF, GF, TF, PF, or with FLOP/s in place of F, per second
//   time        s, ms, us, ns
//
// The number stands right before its unit and may have a fraction and an exponent. Without a unit it is in bytes, bytes
// per second, operations per second or seconds.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

enum class QuantityKind : std::uint8_t { plain, size, rate, operations, time };  // plain: a number without a unit

// With its unit. Nothing for a text that has none of the kind's units, no number before it, or one that is not finite.
std::optional<double> parse_quantity(std::string_view text, QuantityKind kind);

// The text of few digits that reads back to the same bits, in the unit that has from 1 to 999 of it where that is as
// short; a plain number where no unit gives one.
std::string quantity_text(double value, QuantityKind kind);

// "a size as in 80GiB", for remedies.
std::string_view quantity_example(QuantityKind kind);

}  // namespace lockstep
