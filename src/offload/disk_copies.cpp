#include "offload/disk_copies.h"

#include <mutex>

#include "tensor/disk/file_memory.h"
#include "tensor/host_call.h"
#include "tensor/transfer.h"

namespace lockstep {

using disk::FileMemory;

// Whoever asks for it does not wait for a read or write that is under way.
struct DiskCopies::Failure {
  std::mutex mutex;
  std::exception_ptr first;

  std::exception_ptr get() {
    const std::lock_guard lock(mutex);
    return first;
  }
  void set(const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex);
    if (!first) first = failure;
  }
};

namespace {
// A file has one user at a time, whichever streams' calls are made.
std::mutex& files_in_use() {
  static std::mutex mutex;
  return mutex;
}
}  // namespace

DiskCopies::DiskCopies(const Means* means) : failure_(std::make_shared<Failure>()), means_(means) {}

template <class Use>
void DiskCopies::later(const Tensor& there, Use use, Stream& stream) {
  const auto call = [failure = failure_, there, use] {
    const std::lock_guard file(files_in_use());
    if (failure->get()) return;
    try {
      use(FileMemory::of(there.raw()));
    } catch (...) {
      failure->set(std::current_exception());
    }
  };
  means_ ? means_->call(call, stream) : call_later(call, stream);
}

void DiskCopies::bring(const Tensor& place, const Tensor& room, const Tensor& there, Stream& stream) {
  later(
      there, [room, there](FileMemory& file) { file.finish(file.start_read(room.raw(), there.raw(), there.bytes())); },
      stream);
  means_ ? means_->copy(place.raw(), room.raw(), place.bytes(), stream) : upload_later(place, room.raw(), stream);
}

void DiskCopies::take_back(const Tensor& there, const Tensor& room, const Tensor& place, Stream& stream) {
  means_ ? means_->copy(room.raw(), place.raw(), place.bytes(), stream) : download_later(room.raw(), place, stream);
  later(
      there, [room, there](FileMemory& file) { file.finish(file.start_write(there.raw(), room.raw(), there.bytes())); },
      stream);
}

void DiskCopies::rethrow() const {
  if (const std::exception_ptr failure = failure_->get()) std::rethrow_exception(failure);
}

}  // namespace lockstep
