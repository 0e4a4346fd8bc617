#include "support/traced_run.h"

#include <fstream>
#include <sstream>

#include "comm/threads/run_ranks.h"
#include "support/program.h"

namespace lockstep::tests {

std::vector<HeardRun> heard_of(const RunSpec& spec, const WrapRank& wrap) {
  std::vector<HeardRun> heard(static_cast<std::size_t>(spec.layout.ranks()));
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> comm) {
    HeardRun& mine = heard[static_cast<std::size_t>(comm->rank())];
    if (wrap) comm = wrap(std::move(comm));
    TrainingRun run(spec, Device::cpu, std::filesystem::path(spec.run.out) / "checkpoints",
                    {.ranks = spec.layout.ranks() > 1 ? comm.get() : nullptr});
    run.init_weights();
    Progress progress;
    train(run, progress, mine);
  });
  return heard;
}

TraceFacts traced_facts(RunSpec spec) {
  const TemporaryFolder folder;
  spec.run.out = folder.path().string();
  spec.run.trace = 2;
  spec.train.steps = 3;
  heard_of(spec);
  std::ostringstream text;
  text << std::ifstream(folder / "trace.json").rdbuf();
  return facts_of_trace(text.str());
}

}  // namespace lockstep::tests
