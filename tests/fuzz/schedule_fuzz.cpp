// Any text at all is either a schedule, and then it can be timed, drawn and written so that it reads the same, or a
// UserError of one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "pictures/pipeline_picture.h"
#include "plan/measured_timeline.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

void check(const lockstep::PipelineSchedule& schedule) {
  require(lockstep::schedule_fault(schedule).empty());
  const lockstep::PipelineSchedule again = lockstep::parse_schedule(lockstep::to_text(schedule), "again");
  require(again.shape == schedule.shape && again.stages == schedule.stages && again.stage_of == schedule.stage_of);
  const lockstep::PipelineTimeline line = lockstep::timed(schedule, [](int) { return lockstep::ChunkTimes{}; });
  require(line.bubble() >= 0 && line.bubble() < 1 && line.makespan() >= 3.0 * schedule.shape.micro);
  for (const auto& stage : schedule.stages) {
    const int most = lockstep::in_flight(stage);
    require(most >= 1 && most <= schedule.shape.micro * schedule.shape.chunks);
  }
  require(!lockstep::text_picture(line, {.width = 60}).empty());
  require(!lockstep::text_picture(line, {.width = 200, .colour = true}).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(
        lockstep::parse_drawn_schedule({reinterpret_cast<const char*>(data), size}, "fuzz", lockstep::ExitCode::usage));
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::usage && text.starts_with("fuzz"));
    require(text.find('\n') == std::string::npos && text.find("; ") != std::string::npos && text.size() < 1000);
  }
  return 0;
}
