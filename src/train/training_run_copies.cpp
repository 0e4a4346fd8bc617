// Copies of a run's state into memory (checkpoint/state_copy.h): whether there is room for them, and their writer.
#include <algorithm>

#include "comm/gather_texts.h"
#include "telemetry/number_text.h"
#include "tensor/disk/file_memory.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

// Bytes of files that are there already, and are written over.
std::int64_t bytes_in(const std::filesystem::path& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (const auto size = at->file_size(error); !error) bytes += static_cast<std::int64_t>(size);
  return bytes;
}

}  // namespace

std::string TrainingRun::begin_copies(const CopyPlace& place) {
  if (spec_.sparsity) return "the state of a run with [sparsity] is packed, and not copied";
  const Disk memory = Disk::in_memory();
  if (raw_ranks_) copiers_ = raw_ranks_->split([](int r) { return Place{.color = 0, .key = r}; }, "copies");
  copies_ = lockstep::begin_copies(place.folder, place.resumed, memory, copiers_.get());
  CopyBytes bytes = copy_bytes();
  if (copies_.mirrored) bytes.folder *= 2;  // those of another host's ranks, which has as many
  const std::int64_t there =
      place.resumed > 0 ? bytes_in(place.folder / step_folder_name(place.resumed)) / copies_.ranks_here : 0;
  const std::int64_t more = std::max<std::int64_t>(0, bytes.folder - there);
  const std::int64_t own = host_memory_ ? host_ledger_.current() : ledger_.current();
  const std::int64_t room = place.room - own - bytes.process;
  const std::int64_t free = disk::free_bytes_in(place.folder) / copies_.ranks_here;
  std::string why;
  if (more > std::min(room, free))
    why = fmt::format("they need {} for each rank, and {} {}", byte_text(more + bytes.process),
                      byte_text(std::max<std::int64_t>(0, more > free ? free : room + bytes.process)),
                      more > free ? fmt::format("are free in {}", place.folder.parent_path().string())
                                  : std::string("of the host's memory are free"));
  if (copiers_)
    for (const std::string& of_rank : gather_texts(*copiers_, why))
      if (!of_rank.empty()) {
        why = of_rank;
        break;
      }
  if (!why.empty()) {
    if (copies_.first_here) remove_copies(place.folder);
    return why;
  }
  copy_folder_ = {.path = place.folder,
                  .companions = &companions_,
                  .finite_weights = true,
                  .copies = &copies_,
                  .stream = stream_.get()};
  copy_writer_ = std::make_unique<CheckpointWriter>(copy_folder_, written_here(),
                                                    host_memory_ ? *host_memory_ : *memory_, memory, copiers_.get());
  return "";
}

void TrainingRun::copy(const Progress& progress) {
  if (replica_->is_asynchronous()) replica_->async().wish_to_meet();  // where the copy is settled
  replica_->sum_owed();
  copy_writer_->save(progress, *stream_);
  if (Event* const read = copy_writer_->being_read()) replica_->update_after(*read);
}

SaveResult TrainingRun::settle_copy() { return copy_writer_->wait(); }

void TrainingRun::end_copies() {
  copy_writer_.reset();
  if (copies_.first_here) remove_copies(copy_folder_.path);
}

}  // namespace lockstep
