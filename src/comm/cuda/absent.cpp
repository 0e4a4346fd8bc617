// Where there is no CUDA toolkit: no cuda stream can be made, so nothing can be copied in one.
#include "base/error.h"
#include "comm/side_stream.h"

namespace lockstep::cuda {

void copy_later(void*, const void*, std::int64_t, lockstep::Stream&) {
  throw EnvironmentError("this program was built without CUDA; build it where the toolkit is");
}

}  // namespace lockstep::cuda
