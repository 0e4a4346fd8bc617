// Any text at all, with any setting, is either a machine whose file says the same machine, or a UserError of one line.
//
// The first line of the input, when it starts with "--set ", is a setting of the machine that the rest describes.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "spec/machine/machine_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto require = [](bool claim) {
    if (!claim) std::abort();
  };
  std::string text(reinterpret_cast<const char*>(data), size), setting;
  if (text.starts_with("--set ")) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    setting = text.substr(6, end - 6);
    text.erase(0, end);
  }
  try {
    lockstep::MachineSpec machine = lockstep::parse_machine(text, "fuzz");
    require(machine.memory > 0 && machine.devices() > 0 && machine.rate_of_copy(1e6) > 0);
    if (!setting.empty()) lockstep::set_machine_fields(machine, std::span(&setting, 1));
    const std::string written = to_toml(machine);
    if (written.size() < 60000) require(lockstep::parse_machine(written, "again") == machine);
  } catch (const lockstep::UserError& error) {
    const std::string message = error.what();
    require(message.find('\n') == std::string::npos && message.size() < 4000 &&
            message.find("; ") != std::string::npos);
    require(message.find("again") != 0);  // a written file is never refused
  }
  return 0;
}
