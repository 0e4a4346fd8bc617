#include "offload/disk_copies.h"

#include <mutex>

#include "tensor/disk/file_memory.h"
#include "tensor/host_call.h"
#include "tensor/transfer.h"

namespace lockstep {

using disk::FileMemory;

struct DiskCopies::Failure {
  std::mutex mutex;
  std::exception_ptr first;
};

namespace {
// A file has one user at a time, whichever streams' calls are made.
std::mutex& files_in_use() {
  static std::mutex mutex;
  return mutex;
}
}  // namespace

DiskCopies::DiskCopies() : failure_(std::make_shared<Failure>()) {}

template <class Use>
void DiskCopies::later(const Tensor& there, Use use, Stream& stream) {
  call_later(
      [failure = failure_, there, use] {
        const std::lock_guard file(files_in_use());
        const std::lock_guard lock(failure->mutex);
        if (failure->first) return;
        try {
          use(FileMemory::of(there.raw()));
        } catch (...) {
          failure->first = std::current_exception();
        }
      },
      stream);
}

void DiskCopies::bring(const Tensor& place, const Tensor& room, const Tensor& there, Stream& stream) {
  later(
      there, [room, there](FileMemory& file) { file.finish(file.start_read(room.raw(), there.raw(), there.bytes())); },
      stream);
  upload_later(place, room.raw(), stream);
}

void DiskCopies::take_back(const Tensor& there, const Tensor& room, const Tensor& place, Stream& stream) {
  download_later(room.raw(), place, stream);
  later(
      there, [room, there](FileMemory& file) { file.finish(file.start_write(there.raw(), room.raw(), there.bytes())); },
      stream);
}

void DiskCopies::rethrow() const {
  const std::lock_guard lock(failure_->mutex);
  if (failure_->first) std::rethrow_exception(failure_->first);
}

}  // namespace lockstep
