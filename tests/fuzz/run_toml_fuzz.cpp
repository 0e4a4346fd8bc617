// Any text at all, with any setting, is either a run whose resolved file says the same run, or a UserError of one line.
//
// The first line of the input, when it starts with "--set ", is a setting over the rest.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "spec/run/run_toml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto require = [](bool claim) {
    if (!claim) std::abort();
  };
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> sets;
  if (text.starts_with("--set ")) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    sets.push_back(text.substr(6, end - 6));
    text.erase(0, end);
  }
  try {
    const lockstep::RunSpec run = lockstep::parse_run_toml(text, "fuzz", "/fuzz", sets);
    require(lockstep::parameter_count(run.model) > 0 && run.train.global_batch % run.layout.micro == 0);
    require(run.data.seq <= run.model.max_positions);
    const std::string resolved = lockstep::to_toml(run);
    if (resolved.size() < 60000) {
      require(lockstep::parse_run_toml(resolved, "again", "/elsewhere", {}) == run);
    }
  } catch (const lockstep::UserError& error) {
    const std::string message = error.what();
    require(message.find('\n') == std::string::npos && message.size() < 4000 &&
            message.find("; ") != std::string::npos);
    require(message.find("again") != 0);  // a resolved file is never refused
  }
  return 0;
}
