// Where there is no CUDA toolkit there is no NCCL either.
#include "comm/nccl/link.h"

namespace lockstep::nccl {

namespace {
[[noreturn]] void absent() {
  throw EnvironmentError("this program was built without CUDA; build it where the toolkit and NCCL are");
}
}  // namespace

std::unique_ptr<Library> open_library() { absent(); }
int choose_gpu(std::optional<int>) { absent(); }

}  // namespace lockstep::nccl
