// Any text blames a rank or nobody, whether it is an error by itself or a line of events.jsonl.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "telemetry/culprit.h"
#include "telemetry/run_event.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto blamed = lockstep::blamed_in(text); blamed && blamed->rank < 0) std::abort();
  const auto event = lockstep::read_run_event(text);
  if (event && (event->culprit < -1 || event->rank < -1 || event->text.size() > lockstep::kMostEventText)) std::abort();
  if (event) {
    const lockstep::ToldFault faults[] = {{.rank = event->rank, .text = event->text},
                                          {.rank = 1, .text = std::string(text)}};
    lockstep::culprit_of(faults);
  }
  return 0;
}
