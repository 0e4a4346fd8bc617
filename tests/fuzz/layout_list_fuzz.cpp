// Any text at all is either a list of layouts, each of which can be written so that it reads the same, or a UserError
// of one line that names the file.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "spec/layout/layout_list.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto require = [](bool claim) {
    if (!claim) std::abort();
  };
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto list = lockstep::parse_layout_list(text, "fuzz");
    require(!list.empty() && list.size() <= lockstep::kMostListed);
    for (const lockstep::ListedLayout& one : list) {
      if (one.layout.schedule_file.find_first_of(",#\"\\ ") != std::string::npos) continue;  // it would need quotes
      const auto again = lockstep::parse_layout_list(lockstep::to_text(one.layout), "again");
      require(again.size() == 1 && again.front().layout == one.layout);
    }
  } catch (const lockstep::UserError& error) {
    const std::string message = error.what();
    require(message.starts_with("fuzz:") && message.find('\n') == std::string::npos && message.size() < 4000 &&
            message.find("; ") != std::string::npos);
  }
  return 0;
}
