// cuBLASLt, opened when the first product on a GPU needs it.
//
// It is half a gigabyte, and linking it would cost every run of the program 0.2 seconds and 200 MB of memory, also
// where there is no GPU. So it is opened by name, once, and its functions are found in it. Failure: EnvironmentError
// naming the library.
#pragma once
#include <cublasLt.h>

namespace lockstep::cuda {

struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmulDescCreate) product_create;
  decltype(&cublasLtMatmulDescDestroy) product_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) product_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;
  decltype(&cublasLtMatmul) matmul;
};

const CublasLt& cublas_lt();  // thread-safe; stays open until the process ends

}  // namespace lockstep::cuda
