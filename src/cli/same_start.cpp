#include "cli/same_start.h"

#include "checkpoint/all_or_none.h"
#include "cli/agree.h"
#include "spec/text/text_input.h"
#include "train/start_agreement.h"

namespace lockstep {

namespace {
const Refusing kOtherFiles{.code = ExitCode::bad_input_file, .remedy = "give all ranks the same files"};
}

void read_same_data(std::optional<RunData>& data, const RunSpec& spec, Communicator& ranks) {
  all_or_none(&ranks, [&] {
    data.emplace(spec);
    return std::string();
  });
  require_agreement(content_of(*data), texts_over(ranks), ranks.rank(), kOtherFiles);
}

void require_same_import(const RunSpec& spec, Communicator& ranks) {
  require_agreement(imported_content(spec, ranks), texts_over(ranks), ranks.rank(), kOtherFiles);
}

void require_same_checkpoint(const Checkpoint& checkpoint, Communicator& ranks) {
  require_agreement(
      content_of(checkpoint), texts_over(ranks), ranks.rank(),
      {.code = ExitCode::checkpoint,
       .remedy = fmt::format("let all ranks see the same folder as {}", quote_text(checkpoint.path().string()))});
}

void require_same_weights(TrainingRun& run) {
  Communicator* const ranks = run.ranks();
  if (!ranks) return;
  require_none(find_different_weights(*ranks, run.replica(), run.stream()), texts_over(*ranks), ranks->rank(),
               {.code = ExitCode::environment,
                .remedy = "their settings and files are the same, so a machine may be faulty: leave it out"});
}

}  // namespace lockstep
