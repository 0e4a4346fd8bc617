#include "kernels/cuda/cudnn.h"

#include <dlfcn.h>

#include <array>

namespace lockstep::cuda {

namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function)
    throw EnvironmentError(
        fmt::format("cuDNN has no {} ({}); install cuDNN {}.{} or later", name, dlerror(), CUDNN_MAJOR, CUDNN_MINOR));
}

Cudnn open_library() {
  // The major version the headers belong to, by its usual names. It opens pieces of itself later, from its own folder.
  const std::string versioned = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
  void* library = dlopen(versioned.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* folder : {LOCKSTEP_CUDA_LIBRARIES "/", "/usr/local/cuda/lib64/"})
    if (!library) library = dlopen((folder + versioned).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw EnvironmentError(
        fmt::format("{}, which 16-bit attention on a GPU needs, is not found ({}); install cuDNN {}, add its folder to "
                    "LD_LIBRARY_PATH, or compute in fp32",
                    versioned, dlerror(), CUDNN_MAJOR));
  Cudnn api{};
  find(library, "cudnnGetVersion", api.version);
  find(library, "cudnnGetErrorString", api.error_string);
  find(library, "cudnnGetLastErrorString", api.last_error_string);
  find(library, "cudnnCreate", api.create);
  find(library, "cudnnDestroy", api.destroy);
  find(library, "cudnnSetStream", api.set_stream);
  find(library, "cudnnBackendCreateDescriptor", api.descriptor_create);
  find(library, "cudnnBackendDestroyDescriptor", api.descriptor_destroy);
  find(library, "cudnnBackendSetAttribute", api.descriptor_set);
  find(library, "cudnnBackendGetAttribute", api.descriptor_get);
  find(library, "cudnnBackendFinalize", api.descriptor_finalize);
  find(library, "cudnnBackendExecute", api.execute);
  return api;
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn api = open_library();
  return api;
}

void check_cudnn(cudnnStatus_t status, const char* call, const std::string& about) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 1024> detail{};
  cudnn().last_error_string(detail.data(), detail.size());
  throw CudnnError(status, fmt::format("{} ({}) failed: {}: {} (cuDNN {})", call, about, cudnn().error_string(status),
                                       detail.data(), cudnn().version()));
}

}  // namespace lockstep::cuda
