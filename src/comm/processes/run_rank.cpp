#include "comm/processes/run_rank.h"

#include <fmt/format.h>

#include "comm/rethrow.h"

namespace lockstep {

void run_rank(processes::World& world, std::unique_ptr<Communicator> ranks,
              const std::function<void(std::unique_ptr<Communicator>)>& body) {
  if (world.size() == 1) return body(std::move(ranks));
  const std::string who = fmt::format("rank {}: ", world.rank());
  const auto tell = [&](const char* what) {
    world.abort({fmt::format("rank {} has failed: {}", world.rank(), what), true});
    return who + what;
  };
  try {
    body(std::move(ranks));
  } catch (...) {
    rethrow_with(tell);
  }
}

}  // namespace lockstep
