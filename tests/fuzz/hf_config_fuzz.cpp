// Any text at all is either a config.json that gives a consistent spec, or a UserError of one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "spec/model/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto require = [](bool claim) {
    if (!claim) std::abort();
  };
  try {
    const lockstep::ModelSpec spec = lockstep::parse_hf_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    lockstep::validate(spec, "fuzz");
    require(lockstep::parameter_count(spec) > 0);
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(text.find("fuzz") != std::string::npos && text.find('\n') == std::string::npos && text.size() < 2000);
  }
  return 0;
}
