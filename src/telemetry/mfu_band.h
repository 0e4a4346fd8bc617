// How good a model FLOPs utilization (MFU) is, as the field calls it, and which MFU of a run that is said of.
//
// The MFU of a run is what its steps have computed over what the machine could have computed in their time, of all
// steps but the first, which also sets things up. So it is the mean of the steps' MFU, weighted with their seconds. The
// median step would hide a stall that comes every tenth step, and the last step is noise: a person who is told "good"
// and the next time "fair" has learned nothing. Whoever names a band names it of this number: the status line, the last
// lines of `train`, `report` and the page.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

enum class MfuBand : std::uint8_t { above_peak, excellent, good, fair, poor };

// Above 1 it is no number to trust: other programs ran while the peak was measured. Excellent above 0.5, good from 0.3,
// fair from 0.15, poor below; of what is not a number, poor.
MfuBand mfu_band(double mfu);
std::string_view name_of(MfuBand band);
// What to say beside one above the peak.
inline constexpr std::string_view kAbovePeak =
    "the peak was measured while the machine did other work, and is higher: run again when it is idle to know the MFU";

class RunMfu {
 public:
  // Of each step in its order; a step whose MFU is not known has NaN and does not count.
  void add(double mfu, double seconds) {
    if (first_) {
      first_ = false;
      return;
    }
    if (!std::isfinite(mfu) || !std::isfinite(seconds) || seconds <= 0) return;
    reached_ += mfu * seconds;
    seconds_ += seconds;
  }
  // Nothing before the second step.
  std::optional<double> value() const { return seconds_ > 0 ? std::optional(reached_ / seconds_) : std::nullopt; }

 private:
  bool first_ = true;
  double reached_ = 0, seconds_ = 0;
};

}  // namespace lockstep
