#include "telemetry/rank_records.h"

#include <limits>
#include <string>

#include "base/error.h"
#include "telemetry/rank_folder.h"
#include "telemetry/step_lines.h"

namespace lockstep {

namespace {
std::int64_t first_interval(std::int64_t every) {
  LOCKSTEP_CHECK(every > 0, "every {} steps", every);
  return every;
}

std::filesystem::path made_rank_file(const std::filesystem::path& run_folder, int rank) {
  make_rank_folder(run_folder);
  return rank_file(run_folder, rank, "jsonl");
}
}  // namespace

RankRecords::RankRecords(const std::filesystem::path& run_folder, int rank, const RankRecordsOptions& options)
    : interval_(first_interval(options.every)),
      file_(
          rank_file(run_folder, rank, "jsonl"),
          open_step_lines(made_rank_file(run_folder, rank), options.last_step, [this](std::int64_t) { count_line(); }),
          options.most_kept) {}

void RankRecords::write(std::int64_t step, std::string_view line) {
  if (!wants(step)) return;
  first_ = false;
  const std::int64_t dropped = file_.dropped();
  file_.write(std::string(line) + '\n');
  if (file_.dropped() == dropped) count_line();
}

void RankRecords::count_line() {
  constexpr std::int64_t kMostInterval = std::numeric_limits<std::int64_t>::max() / 2;
  if (++lines_ % kLinesBeforeDoubling == 0 && interval_ <= kMostInterval) interval_ *= 2;
}

}  // namespace lockstep
