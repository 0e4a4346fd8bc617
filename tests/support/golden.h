// Where the golden models are: Hugging Face folders with what another implementation computes from them.
#pragma once
#include <string>

namespace lockstep::tests {

inline const std::string kGolden = LOCKSTEP_SOURCE_DIR "/tests/golden/";

}  // namespace lockstep::tests
