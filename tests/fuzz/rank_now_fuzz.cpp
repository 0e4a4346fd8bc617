// Any bytes at all are either what a rank is doing, and then it is written and read again as it was, or a UserError of
// one line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "telemetry/rank_now.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::RankNow now = lockstep::parse_rank_now({reinterpret_cast<const char*>(data), size}, "fuzz");
    require(now.rank >= 0 && now.rank < lockstep::kMostRanks && now.step >= 0 && now.call >= -1);
    require(now.seconds >= 0 && now.time >= 0);
    const std::string line = to_json_line(now);
    require(line.size() <= lockstep::kMostRankNowBytes);
    require(to_json_line(lockstep::parse_rank_now(line, "again")) == line);
  } catch (const lockstep::UserError& error) {
    const std::string text = error.what();
    require(error.code() == lockstep::ExitCode::bad_input_file);
    require(text.starts_with("fuzz: ") && text.find('\n') == std::string::npos && text.size() < 1000);
  }
  return 0;
}
