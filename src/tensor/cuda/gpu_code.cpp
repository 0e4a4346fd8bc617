#include <fmt/format.h>

#include <sstream>

#include "tensor/cuda/device.h"

namespace lockstep::cuda {

std::string no_code_for(int major, int minor, const std::string& targets) {
  const int here = major * 10 + minor;
  std::istringstream words(targets);
  for (std::string word; words >> word;) {
    const std::size_t digits = word.find_first_of("0123456789");
    if (digits == std::string::npos) continue;
    const int target = std::stoi(word.substr(digits));
    const char last = word.back();
    if (last == 'a' ? target == here  // for exactly this one
        : word.starts_with("compute_")
            ? target <= here                                         // the driver translates it
            : target / 10 == here / 10 && target % 10 <= here % 10)  // machine code of the same generation
      return "";
  }
  return fmt::format(
      "its compute capability is {}.{} and this build has code for {}; build again with -DLOCKSTEP_GPU="
      "compute_{}:sm_{}",
      major, minor, targets, here, here);
}

std::string no_fp8_on(int major, int minor) {
  if (major * 10 + minor >= 89) return "";
  return fmt::format("its compute capability is {}.{} and FP8 products begin with 8.9; use precision.compute=bf16",
                     major, minor);
}

}  // namespace lockstep::cuda
