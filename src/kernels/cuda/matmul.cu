// Matrix products by cuBLASLt, and the bias that joins them.
//
// cuBLASLt thinks in columns: a row-major (r, c) is a column-major (c, r), so cᵀ = op(b)ᵀ · op(a)ᵀ is asked for, with
// the operands the other way round. fp32 is computed in fp32 (no TF32), 16-bit types in fp32. The algorithm is the
// heuristic's first, found once for each form of a product and kept; split sums are only allowed through the workspace,
// in a fixed order, so the same call gives the same bits.
#include <array>
#include <map>
#include <memory>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/matmul.h"

namespace lockstep::cuda {

namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw EnvironmentError(fmt::format("{} failed: {}", call, cublas_lt().status_string(status)));
}

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
    default:
      LOCKSTEP_CHECK(false, "a product of {}", name_of(t));
  }
}

// The largest power of two, up to 256, that divides an address.
std::int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::int64_t>(address & (~address + 1));
}

// A product described to the library, with the algorithm chosen for it.
struct Plan {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  ~Plan() {
    if (product) cublas_lt().product_destroy(product);
    for (const cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) cublas_lt().layout_destroy(layout);
  }
};

using Form = std::array<std::int64_t, 13>;

// What a stream keeps of the library: its handle and the plans made so far.
class Library {
 public:
  Library() { check(cublas_lt().create(&handle_), "cublasLtCreate"); }
  ~Library() {
    plans_.clear();
    cublas_lt().destroy(handle_);
  }
  cublasLtHandle_t handle() const { return handle_; }

  const Plan& plan(const MatmulArgs& m, std::int64_t M, std::int64_t N, std::int64_t K, std::int64_t workspace) {
    const Form form{M,
                    N,
                    K,
                    m.transpose_a,
                    m.transpose_b,
                    m.a.stride(0),
                    m.b.stride(0),
                    m.c.stride(0),
                    static_cast<int>(m.a.dtype()),
                    static_cast<int>(m.c.dtype()),
                    alignment_of(m.a.raw()),
                    alignment_of(m.b.raw()),
                    alignment_of(m.c.raw())};
    std::unique_ptr<Plan>& kept = plans_[form];
    if (!kept) kept = make(m, M, N, K, workspace, form);
    return *kept;
  }

  static Library& of(Stream& stream) {
    std::shared_ptr<void>& kept = stream.library();
    if (!kept) kept = std::make_shared<Library>();
    return *static_cast<Library*>(kept.get());
  }

 private:
  std::unique_ptr<Plan> make(const MatmulArgs& m, std::int64_t M, std::int64_t N, std::int64_t K,
                             std::int64_t workspace, const Form& form) {
    auto plan = std::make_unique<Plan>();
    const bool wide = m.a.dtype() == DType::f64;
    check(cublas_lt().product_create(&plan->product, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                     wide ? CUDA_R_64F : CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const auto turn = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
      const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(cublas_lt().product_set(plan->product, which, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
    };
    turn(CUBLASLT_MATMUL_DESC_TRANSA, m.transpose_b);
    turn(CUBLASLT_MATMUL_DESC_TRANSB, m.transpose_a);
    const auto layout = [](cublasLtMatrixLayout_t& made, const ConstTensor& t) {
      check(cublas_lt().layout_create(&made, type_of(t.dtype()), static_cast<std::uint64_t>(t.dim(1)),
                                      static_cast<std::uint64_t>(t.dim(0)), std::max(t.stride(0), t.dim(1))),
            "cublasLtMatrixLayoutCreate");
    };
    layout(plan->a, m.b);
    layout(plan->b, m.a);
    layout(plan->c, m.c);

    cublasLtMatmulPreference_t wish = nullptr;
    check(cublas_lt().preference_create(&wish), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(CublasLt::preference_destroy)>
        freed(wish, cublas_lt().preference_destroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      check(cublas_lt().preference_set(wish, which, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace));
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(form[11]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(form[10]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(form[12]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(form[12]));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    check(cublas_lt().heuristic(handle_, plan->product, plan->a, plan->b, plan->c, plan->c, wish, 1, &result, &found),
          "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0)
      throw EnvironmentError(
          fmt::format("cublasLt has no way to multiply {} x {} x {} in {}", M, K, N, name_of(m.a.dtype())));
    plan->algorithm = result.algo;
    return plan;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Form, std::unique_ptr<Plan>> plans_;
};

// c = sums [+ what c held] [+ bias], rounded once. sums may be c itself, or none: then they are zero.
template <class R, class S>
__global__ void finish(R* c, std::int64_t stride, const Compute<R>* sums, std::int64_t sums_stride, const S* bias,
                       std::int64_t M, std::int64_t N, bool accumulate) {
  using T = Compute<R>;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < M * N;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t row = i / N, column = i % N;
    R& out = c[row * stride + column];
    T total = sums ? sums[row * sums_stride + column] : T(0);
    if (accumulate) total += widen(out);
    out = narrow<R>(bias ? total + static_cast<T>(widen(bias[column])) : total);
  }
}

void multiply(const MatmulArgs& m, std::int64_t K, void* workspace, std::int64_t bytes, Stream& stream) {
  Library& library = Library::of(stream);
  const Plan& plan = library.plan(m, m.c.dim(0), m.c.dim(1), K, bytes);
  const double wide_one = 1, wide_beta = m.accumulate ? 1 : 0;
  const float one = 1, beta = m.accumulate ? 1 : 0;
  const bool wide = m.a.dtype() == DType::f64;
  check(cublas_lt().matmul(library.handle(), plan.product, wide ? static_cast<const void*>(&wide_one) : &one, m.b.raw(),
                           plan.a, m.a.raw(), plan.b, wide ? static_cast<const void*>(&wide_beta) : &beta, m.c.raw(),
                           plan.c, m.c.raw(), plan.c, &plan.algorithm, workspace, static_cast<std::size_t>(bytes),
                           native(stream)),
        "cublasLtMatmul");
}

// What is left to do when the sums of rows [first, first + rows) of c are known; none: they are zero.
void finish_rows(const MatmulArgs& m, std::int64_t first, std::int64_t rows, const Tensor& sums, bool accumulate,
                 Stream& stream) {
  const std::int64_t N = m.c.dim(1);
  with_float_and_result(m.a.dtype(), m.c.dtype(), [&](auto s, auto r) {
    using S = typename decltype(s)::Type;
    using R = typename decltype(r)::Type;
    finish<R, S><<<blocks_for(rows * N), kThreads, 0, native(stream)>>>(
        m.c.data<R>() + first * m.c.stride(0), m.c.stride(0), sums ? sums.template data<Compute<R>>() : nullptr,
        sums ? sums.stride(0) : 0, m.bias ? m.bias.template data<S>() : nullptr, rows, N, accumulate);
  });
  check_launch("matmul's bias");
}

}  // namespace

void matmul(const MatmulArgs& m, lockstep::Stream& on) {
  Stream& stream = Stream::of(on);
  const std::int64_t M = m.c.dim(0), N = m.c.dim(1), K = m.a.dim(m.transpose_a ? 0 : 1);
  if (M == 0 || N == 0) return;
  if (K == 0) {
    if (!m.accumulate || m.bias) finish_rows(m, 0, M, {}, m.accumulate, stream);
    return;
  }
  const bool narrow_result = size_of(m.c.dtype()) == 2;
  if (!m.bias || !narrow_result) {
    multiply(m, K, stream.scratch(), kScratchBytes, stream);
    if (m.bias) finish_rows(m, 0, M, m.c, false, stream);
    return;
  }
  // A bias joins before a 16-bit result is rounded. Some of the library's kernels round in between, so the sums are
  // made in fp32 in half of the scratch, so many rows at a time as fit, and the other half is the library's.
  const std::int64_t rows_at_a_time = std::max<std::int64_t>(1, kScratchBytes / 2 / (N * 4));
  for (std::int64_t first = 0; first < M; first += rows_at_a_time) {
    const std::int64_t rows = std::min(rows_at_a_time, M - first);
    const Tensor sums(stream.scratch(), DType::f32, Device::cuda, {rows, N});
    multiply({.c = sums,
              .a = m.a.slice(m.transpose_a ? 1 : 0, first, rows),
              .b = m.b,
              .transpose_a = m.transpose_a,
              .transpose_b = m.transpose_b},
             K, static_cast<char*>(stream.scratch()) + kScratchBytes / 2, kScratchBytes / 2, stream);
    finish_rows(m, first, rows, sums, m.accumulate, stream);
  }
}

}  // namespace lockstep::cuda
