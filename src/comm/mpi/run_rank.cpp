#include "comm/mpi/run_rank.h"

#include <fmt/format.h>

namespace lockstep {

void run_rank(MpiWorld& world, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  if (world.size() == 1) return body(world.communicator());
  const std::string who = fmt::format("rank {}: ", world.rank());
  const auto tell = [&](const char* what) {
    world.abort(fmt::format("rank {} has failed: {}", world.rank(), what));
    return who + what;
  };
  try {
    body(world.communicator());
  } catch (const UserError& error) {
    throw UserError(error.code(), tell(error.what()), "");
  } catch (const CommError& error) {
    throw CommError(tell(error.what()), error.secondary());
  } catch (const ProgramError& error) {
    throw ProgramError(tell(error.what()));
  } catch (const std::exception& error) {
    throw EnvironmentError(tell(error.what()));
  } catch (...) {
    throw EnvironmentError(tell("an exception without words"));
  }
}

}  // namespace lockstep
