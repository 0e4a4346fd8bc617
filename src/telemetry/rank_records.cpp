#include "telemetry/rank_records.h"

#include <string>

#include "telemetry/rank_folder.h"
#include "telemetry/step_lines.h"

namespace lockstep {

namespace {
std::filesystem::path made_rank_file(const std::filesystem::path& run_folder, int rank) {
  make_rank_folder(run_folder);
  return rank_file(run_folder, rank, "jsonl");
}
}  // namespace

RankRecords::RankRecords(const std::filesystem::path& run_folder, int rank, const RankRecordsOptions& options)
    : sampling_(options.every),
      file_(rank_file(run_folder, rank, "jsonl"),
            open_step_lines(made_rank_file(run_folder, rank), options.last_step,
                            [this](std::int64_t) { sampling_.count_line(); }),
            options.most_kept) {}

void RankRecords::write(std::int64_t step, std::string_view line) {
  if (!wants(step)) return;
  sampling_.recorded();
  const std::int64_t dropped = file_.dropped();
  file_.write(std::string(line) + '\n');
  if (file_.dropped() == dropped) sampling_.count_line();
}

}  // namespace lockstep
