#include "telemetry/mfu_band.h"

#include <array>

namespace lockstep {

MfuBand mfu_band(double mfu) {
  if (mfu > 1) return MfuBand::above_peak;
  if (mfu > 0.5) return MfuBand::excellent;
  if (mfu >= 0.3) return MfuBand::good;
  return mfu >= 0.15 ? MfuBand::fair : MfuBand::poor;
}

std::string_view name_of(MfuBand band) {
  constexpr std::array<std::string_view, 5> kNames{"above the measured peak", "excellent", "good", "fair", "poor"};
  return kNames[static_cast<std::size_t>(band)];
}

}  // namespace lockstep
