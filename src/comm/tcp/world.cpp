#include "comm/tcp/world.h"

#include "comm/tcp/transport.h"

namespace lockstep {

namespace {
// Of connecting: whoever fails at it tells the others before they have waited for that too long.
constexpr double kShareOfDeadline = 0.8;
}  // namespace

TcpWorld::TcpWorld(TcpOptions options)
    : World(options.processes, {.transport = [options]() -> std::unique_ptr<processes::Transport> {
              return std::make_unique<tcp::Transport>(
                  tcp::Connecting{.rank = options.rank,
                                  .address = options.address,
                                  .gather = options.gather,
                                  .deadline_seconds = kShareOfDeadline * options.processes.deadline_seconds},
                  options.size);
            }}) {}

}  // namespace lockstep
