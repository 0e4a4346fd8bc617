// Replaces io_uring in a build without liburing: threads read and write there.
#include "tensor/disk/raw_io.h"

namespace lockstep::disk {

std::unique_ptr<RawIo> make_uring_io(int) { return nullptr; }

}  // namespace lockstep::disk
