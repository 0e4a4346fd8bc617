// How good a model FLOPs utilization is, in the words of the field.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class MfuBand : std::uint8_t { excellent, good, fair, poor };

// Excellent above 0.5, good from 0.3, fair from 0.15, poor below; of what is not a number, poor.
MfuBand mfu_band(double mfu);
std::string_view name_of(MfuBand band);

}  // namespace lockstep
