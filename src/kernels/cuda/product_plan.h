// One form of a matrix product, described to cuBLASLt, and the library's algorithms for it.
//
// cuBLASLt thinks in columns: a row-major (r, c) is a column-major (c, r), so cᵀ = op(b)ᵀ · op(a)ᵀ is asked for, with
// the operands the other way round. fp32 is computed in fp32 (no TF32), 16-bit types in fp32. Sums may be split only
// through the workspace and in a fixed order, so each of these algorithms gives the same bits for the same call.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/matmul.h"

namespace lockstep::cuda {

// EnvironmentError with the call and what cuBLASLt says of the status, unless it is success.
void check_product(cublasStatus_t status, const char* call);

// What a choice of algorithm may depend on. Alignments are the largest powers of two, up to 256, that divide addresses.
struct ProductForm {
  std::int64_t M, N, K;
  bool transpose_a, transpose_b;
  DType operands, other, result;           // of a, b, c
  std::array<std::int64_t, 3> strides;     // from row to row of a, b, c
  std::array<std::int64_t, 3> alignments;  // of a, b, c
  std::int64_t workspace;                  // bytes
  bool fast_sums;
  auto operator<=>(const ProductForm&) const = default;
  static ProductForm of(const MatmulArgs& product, std::int64_t workspace);
  std::string text() const;
};

using ProductAlgorithm = cublasLtMatmulAlgo_t;
std::string to_text(const ProductAlgorithm& algorithm);

class ProductPlan {
 public:
  ProductPlan(const ProductForm& form, cublasLtHandle_t handle);
  ~ProductPlan();
  ProductPlan(const ProductPlan&) = delete;
  ProductPlan& operator=(const ProductPlan&) = delete;

  // What the library proposes, best first by its own estimate; at least one, at most `most`.
  std::vector<ProductAlgorithm> proposals(int most) const;
  // What to_text() wrote; EnvironmentError when that is no algorithm for this form here.
  ProductAlgorithm from_text(const std::string& text) const;

  // c = beta·c + op(a) · op(b), queued on the stream (a cudaStream_t).
  struct Call {
    void* c;
    const void* a;
    const void* b;
    double beta;
    const void* addend;   // what beta multiplies: c itself, or something of its layout
    const void* scale_a;  // of FP8 operands, on the device
    const void* scale_b;
    void* workspace;
    void* stream;
  };
  cublasStatus_t multiply(const ProductAlgorithm& algorithm, const Call& call) const;

  ProductAlgorithm chosen{};

 private:
  // Whether it runs here, in the workspace there is, and always gives the same bits.
  bool usable(const ProductAlgorithm& algorithm) const;
  void point(cublasLtMatmulDescAttributes_t which, const void* to) const;  // to something on the device

  ProductForm form_;
  cublasLtHandle_t handle_;  // not owned
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

}  // namespace lockstep::cuda
