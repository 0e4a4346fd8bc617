#include "kernels/cuda/product_plan.h"

#include <algorithm>
#include <charconv>
#include <memory>

namespace lockstep::cuda {

namespace {

constexpr std::uint32_t kFixedOrder = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      LOCKSTEP_CHECK(false, "a product of {}", name_of(t));
  }
}

std::int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::int64_t>(address & (~address + 1));
}

}  // namespace

void check_product(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw EnvironmentError(fmt::format("{} failed: {}", call, cublas_lt().status_string(status)));
}

ProductForm ProductForm::of(const MatmulArgs& m, std::int64_t workspace) {
  const auto stride = [](const ConstTensor& t) { return std::max(t.stride(0), t.dim(1)); };
  return {.M = m.c.dim(0),
          .N = m.c.dim(1),
          .K = m.a.dim(m.transpose_a ? 0 : 1),
          .transpose_a = m.transpose_a,
          .transpose_b = m.transpose_b,
          .operands = m.a.dtype(),
          .other = m.b.dtype(),
          .result = m.c.dtype(),
          .strides = {stride(m.a), stride(m.b), stride(m.c)},
          .alignments = {alignment_of(m.a.raw()), alignment_of(m.b.raw()), alignment_of(m.c.raw())},
          .workspace = workspace,
          .fast_sums = m.fast_sums};
}

std::string ProductForm::text() const {
  const std::string types =
      std::string(name_of(operands)) + (other == operands ? "" : fmt::format("*{}", name_of(other)));
  return fmt::format("{}x{}x{} {}{} {}>{} strides {},{},{} aligned {},{},{} room {}{}", M, N, K,
                     transpose_a ? 't' : 'n', transpose_b ? 't' : 'n', types, name_of(result), strides[0], strides[1],
                     strides[2], alignments[0], alignments[1], alignments[2], workspace, fast_sums ? " fast" : "");
}

std::string to_text(const ProductAlgorithm& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

ProductPlan::ProductPlan(const ProductForm& form, cublasLtHandle_t handle) : form_(form), handle_(handle) {
  const bool wide = form.operands == DType::f64;
  check_product(cublas_lt().product_create(&product_, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                           wide ? CUDA_R_64F : CUDA_R_32F),
                "cublasLtMatmulDescCreate");
  const auto turn = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_product(cublas_lt().product_set(product_, which, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  };
  turn(CUBLASLT_MATMUL_DESC_TRANSA, form.transpose_b);
  turn(CUBLASLT_MATMUL_DESC_TRANSB, form.transpose_a);
  if (is_fp8(form.operands)) {
    // Proposals may depend on there being scales; multiply() says where they are.
    for (const auto which : {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER})
      point(which, this);
    const std::int8_t fast = form.fast_sums;
    check_product(cublas_lt().product_set(product_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast),
                  "cublasLtMatmulDescSetAttribute");
  }
  const auto layout = [](cublasLtMatrixLayout_t& made, DType type, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride) {
    check_product(cublas_lt().layout_create(&made, type_of(type), static_cast<std::uint64_t>(columns),
                                            static_cast<std::uint64_t>(rows), stride),
                  "cublasLtMatrixLayoutCreate");
  };
  const auto& [M, N, K] = std::tie(form.M, form.N, form.K);
  layout(a_, form.other, form.transpose_b ? N : K, form.transpose_b ? K : N, form.strides[1]);
  layout(b_, form.operands, form.transpose_a ? K : M, form.transpose_a ? M : K, form.strides[0]);
  layout(c_, form.result, M, N, form.strides[2]);
}

void ProductPlan::point(cublasLtMatmulDescAttributes_t which, const void* to) const {
  check_product(cublas_lt().product_set(product_, which, &to, sizeof to), "cublasLtMatmulDescSetAttribute");
}

ProductPlan::~ProductPlan() {
  if (product_) cublas_lt().product_destroy(product_);
  for (const cublasLtMatrixLayout_t layout : {a_, b_, c_})
    if (layout) cublas_lt().layout_destroy(layout);
}

bool ProductPlan::usable(const ProductAlgorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  if (cublas_lt().algorithm_check(handle_, product_, a_, b_, c_, c_, &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > static_cast<std::size_t>(form_.workspace))
    return false;
  std::uint32_t scheme = 0;
  std::size_t written = 0;
  const cublasStatus_t known =
      cublas_lt().algorithm_get(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &written);
  return known != CUBLAS_STATUS_SUCCESS || (scheme & ~kFixedOrder) == 0;  // one without the setting splits nothing
}

std::vector<ProductAlgorithm> ProductPlan::proposals(int most) const {
  cublasLtMatmulPreference_t wish = nullptr;
  check_product(cublas_lt().preference_create(&wish), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(CublasLt::preference_destroy)>
      freed(wish, cublas_lt().preference_destroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    check_product(cublas_lt().preference_set(wish, which, &value, sizeof value),
                  "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto aligned = [&](int operand) { return static_cast<std::uint32_t>(form_.alignments[operand]); };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(form_.workspace));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kFixedOrder);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned(1));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned(0));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned(2));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned(2));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      cublas_lt().heuristic(handle_, product_, a_, b_, c_, c_, wish, most, results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_product(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<ProductAlgorithm> all;
  for (int i = 0; i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS && usable(results[i].algo)) all.push_back(results[i].algo);
  if (all.empty()) throw EnvironmentError(fmt::format("cuBLASLt has no way to multiply {}", form_.text()));
  return all;
}

ProductAlgorithm ProductPlan::from_text(const std::string& text) const {
  ProductAlgorithm algorithm{};
  bool read = text.size() == 16 * std::size(algorithm.data);
  for (std::size_t i = 0; read && i < std::size(algorithm.data); ++i) {
    const char *begin = text.data() + 16 * i, *end = begin + 16;
    const auto [last, error] = std::from_chars(begin, end, algorithm.data[i], 16);
    read = error == std::errc() && last == end;
  }
  if (!read || !usable(algorithm))
    throw EnvironmentError(
        fmt::format("the algorithm kept for the product {} does not run on this GPU; remove [tuning] from the run file",
                    form_.text()));
  return algorithm;
}

cublasStatus_t ProductPlan::multiply(const ProductAlgorithm& algorithm, const Call& call) const {
  const double wide_one = 1;
  const float one = 1, beta = static_cast<float>(call.beta);
  const bool wide = form_.operands == DType::f64;
  if (is_fp8(form_.operands)) {  // the library's operands are the other way round
    point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.scale_b);
    point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.scale_a);
  }
  return cublas_lt().matmul(handle_, product_, wide ? static_cast<const void*>(&wide_one) : &one, call.b, a_, call.a,
                            b_, wide ? static_cast<const void*>(&call.beta) : &beta, call.addend, c_, call.c, c_,
                            &algorithm, call.workspace, static_cast<std::size_t>(form_.workspace),
                            static_cast<cudaStream_t>(call.stream));
}

}  // namespace lockstep::cuda
