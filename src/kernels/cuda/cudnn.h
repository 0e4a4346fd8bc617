// cuDNN 9's backend functions, opened when attention on a GPU first needs them.
//
// Opened by name as cuBLASLt is (cublas_lt.h says why): the library loads hundreds of megabytes of its own pieces.
// Failure: EnvironmentError of one line. A library that is missing is named with the remedy; a call that fails is named
// with what it was about and both of the things cuDNN says of it.
#pragma once
#include <cudnn_graph.h>

#include <string>

#include "base/error.h"

namespace lockstep::cuda {

struct Cudnn {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) descriptor_create;
  decltype(&cudnnBackendDestroyDescriptor) descriptor_destroy;
  decltype(&cudnnBackendSetAttribute) descriptor_set;
  decltype(&cudnnBackendGetAttribute) descriptor_get;
  decltype(&cudnnBackendFinalize) descriptor_finalize;
  decltype(&cudnnBackendExecute) execute;
};

const Cudnn& cudnn();  // thread-safe; stays open until the process ends

class CudnnError : public EnvironmentError {
 public:
  CudnnError(cudnnStatus_t status, const std::string& what) : EnvironmentError(what), status_(status) {}
  cudnnStatus_t status() const { return status_; }
  // The library understood what was asked and has no way to do it on this GPU.
  bool unsupported() const { return CUDNN_STATUS_CATEGORY(status_) == CUDNN_STATUS_NOT_SUPPORTED; }

 private:
  cudnnStatus_t status_;
};

// Throws CudnnError naming the call, what it was about, and why it failed.
void check_cudnn(cudnnStatus_t status, const char* call, const std::string& about);

}  // namespace lockstep::cuda
