#include <dlfcn.h>

#include <string>

#include "base/error.h"
#include "kernels/cuda/cublas_lt.h"

namespace lockstep::cuda {

namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw EnvironmentError(fmt::format("cuBLASLt has no {}: {}", name, dlerror()));
}

CublasLt open_library() {
  // The major version the headers belong to, by its usual names.
  const std::string versioned = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* library = dlopen(versioned.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* folder : {LOCKSTEP_CUDA_LIBRARIES "/", "/usr/local/cuda/lib64/"})
    if (!library) library = dlopen((folder + versioned).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw EnvironmentError(fmt::format(
        "{} is not found ({}); install CUDA's cuBLAS, or add its folder to LD_LIBRARY_PATH", versioned, dlerror()));
  CublasLt lt{};
  find(library, "cublasLtCreate", lt.create);
  find(library, "cublasLtDestroy", lt.destroy);
  find(library, "cublasLtGetVersion", lt.version);
  find(library, "cublasLtGetStatusString", lt.status_string);
  find(library, "cublasLtMatmulDescCreate", lt.product_create);
  find(library, "cublasLtMatmulDescDestroy", lt.product_destroy);
  find(library, "cublasLtMatmulDescSetAttribute", lt.product_set);
  find(library, "cublasLtMatrixLayoutCreate", lt.layout_create);
  find(library, "cublasLtMatrixLayoutDestroy", lt.layout_destroy);
  find(library, "cublasLtMatmulPreferenceCreate", lt.preference_create);
  find(library, "cublasLtMatmulPreferenceDestroy", lt.preference_destroy);
  find(library, "cublasLtMatmulPreferenceSetAttribute", lt.preference_set);
  find(library, "cublasLtMatmulAlgoGetHeuristic", lt.heuristic);
  find(library, "cublasLtMatmulAlgoCheck", lt.algorithm_check);
  find(library, "cublasLtMatmulAlgoConfigGetAttribute", lt.algorithm_get);
  find(library, "cublasLtMatmul", lt.matmul);
  return lt;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt lt = open_library();
  return lt;
}

}  // namespace lockstep::cuda
