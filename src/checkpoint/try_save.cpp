#include "checkpoint/try_save.h"

#include <new>

#include "base/error.h"

namespace lockstep {
namespace {

SaveResult failure(SaveOutcome outcome, const char* why) { return {outcome, why, std::current_exception()}; }

SaveResult try_alone(const CheckpointFolder& folder, const Progress& progress, std::span<const StateTensor> pieces,
                     const Disk& disk, Communicator* ranks) {
  try {
    save_checkpoint(folder, progress, pieces, disk, ranks);
    return {};
  } catch (const EnvironmentError& error) {  // also of another rank, by its name
    return failure(SaveOutcome::failed, error.what());
  } catch (const UserError& error) {
    return failure(error.code() == ExitCode::environment ? SaveOutcome::failed : SaveOutcome::refused, error.what());
  } catch (const std::bad_alloc&) {
    return failure(SaveOutcome::failed, "out of memory");
  } catch (const std::exception& error) {
    return failure(SaveOutcome::refused, error.what());
  }
}

}  // namespace

SaveResult try_save(const CheckpointFolder& folder, const Progress& progress, std::span<const StateTensor> pieces,
                    const Disk& disk, Communicator* ranks) {
  SaveResult result = try_alone(folder, progress, pieces, disk, ranks);
  if (result.outcome == SaveOutcome::saved || !ranks || ranks->size() == 1) return result;
  // It has failed on all of them (all_or_none.h). They meet once more: where the group is what has failed, that says
  // so, and where one of them would fail again, all would.
  std::int64_t refused = result.outcome == SaveOutcome::refused ? 1 : 0;
  try {
    ranks->all_reduce(Tensor(&refused, DType::i64, Device::cpu, {1}))->wait();
  } catch (...) {
    std::rethrow_exception(result.error);
  }
  if (refused > 0) result.outcome = SaveOutcome::refused;
  return result;
}

}  // namespace lockstep
