// Any bytes at all are either the state of a launch, and then it is written and read again as it was, or a UserError of
// one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "telemetry/launch_state.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::LaunchState state =
        lockstep::parse_launch_state({reinterpret_cast<const char*>(data), size}, "fuzz");
    require(state.epoch >= 0 && state.restarts >= 0 && state.since >= 0);
    require(!state.goodput || (*state.goodput >= 0 && *state.goodput <= 1));
    const std::string line = to_json_line(state);
    require(to_json_line(lockstep::parse_launch_state(line, "again")) == line);
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::bad_input_file);
    require(text.starts_with("fuzz: ") && text.find('\n') == std::string::npos && text.size() < 1000);
  }
  return 0;
}
