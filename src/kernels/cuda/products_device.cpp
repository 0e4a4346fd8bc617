#include "kernels/cuda/products.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::cuda {

namespace {

constexpr int kProposals = 8;  // that are timed
constexpr int kRounds = 7;     // of which the median counts
constexpr std::size_t kMostPlans = 4096;
constexpr double kGain = 0.99;  // a proposal further down must be faster by this: noise alone changes nothing

// Two points of a stream and the time between them.
class Stopwatch {
 public:
  Stopwatch() {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Stopwatch() {
    if (begin_) cudaEventDestroy(begin_);
    if (end_) cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  template <class Work>
  float milliseconds(cudaStream_t stream, Work&& work) {
    check_cuda(cudaEventRecord(begin_, stream), "cudaEventRecord");
    work();
    check_cuda(cudaEventRecord(end_, stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "timing a product");
    float time = 0;
    check_cuda(cudaEventElapsedTime(&time, begin_, end_), "cudaEventElapsedTime");
    return time;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Room for a result like c, as it is aligned; none when the device has not so much left.
class Spare {
 public:
  explicit Spare(const ProductForm& form) {
    const std::int64_t bytes = ((form.M - 1) * form.strides[2] + form.N) * size_of(form.result);
    const std::int64_t shift = form.alignments[2] % 256;
    if (cudaMalloc(&taken_, static_cast<std::size_t>(bytes + shift)) != cudaSuccess) {
      cudaGetLastError();  // or the next call would report it
      taken_ = nullptr;
      return;
    }
    data_ = static_cast<char*>(taken_) + shift;
  }
  ~Spare() {
    if (taken_) cudaFree(taken_);
  }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
  void* data() const { return data_; }

 private:
  void *taken_ = nullptr, *data_ = nullptr;
};

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

// The fastest of several, each run once in each round, so that a clock that moves meets all of them. One that does not
// run after all is out.
ProductAlgorithm fastest(const std::vector<ProductAlgorithm>& all, const ProductPlan& plan,
                         const ProductPlan::Call& call) {
  const auto stream = static_cast<cudaStream_t>(call.stream);
  Stopwatch stopwatch;
  std::vector<std::vector<float>> times(all.size());
  for (int round = -1; round < kRounds; ++round)  // the first warms up
    for (std::size_t i = 0; i < all.size(); ++i) {
      cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
      const float time = stopwatch.milliseconds(stream, [&] { status = plan.multiply(all[i], call); });
      if (round >= 0) times[i].push_back(status == CUBLAS_STATUS_SUCCESS ? time : std::numeric_limits<float>::max());
    }
  const auto median = [](std::vector<float> values) {
    std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
    return static_cast<double>(values[values.size() / 2]);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (median(times[i]) < kGain * median(times[best])) best = i;
  return all[best];
}

}  // namespace

Products::Products() { check_product(cublas_lt().create(&handle_), "cublasLtCreate"); }

Products::~Products() {
  plans_.clear();
  cublas_lt().destroy(handle_);
}

Products& Products::of(Stream& stream) {
  std::shared_ptr<void>& kept = stream.kept_for(Library::cublas_lt);
  if (!kept) kept = std::make_shared<Products>();
  return *static_cast<Products*>(kept.get());
}

void Products::set_choices(const ProductChoices& given, bool autotune) {
  choices_ = given;
  autotune_ = autotune;
  news_ = false;
  plans_.clear();
}

ProductAlgorithm Products::choose(const ProductForm& form, const ProductPlan& plan, const MatmulArgs& product,
                                  const ProductPlan::Call& call) {
  const std::string text = form.text();
  if (const auto given = choices_.find(text); given != choices_.end()) return plan.from_text(given->second);
  if (!autotune_) return plan.proposals(1).front();
  const std::vector<ProductAlgorithm> all = plan.proposals(kProposals);
  ProductAlgorithm best = all.front();
  if (all.size() > 1 && !is_captured(static_cast<cudaStream_t>(call.stream))) {
    ProductPlan::Call trial = call;
    trial.beta = 0;
    if (product.accumulate) {
      const Spare spare(form);
      trial.c = spare.data();
      trial.addend = trial.c;
      if (trial.c) best = fastest(all, plan, trial);
    } else {
      best = fastest(all, plan, trial);
    }
  }
  choices_[text] = to_text(best);
  news_ = true;
  return best;
}

void Products::multiply(const MatmulArgs& m, void* workspace, std::int64_t workspace_bytes, Stream& stream) {
  const ProductForm form = ProductForm::of(m, workspace_bytes);
  const ProductPlan::Call call{.c = m.c.raw(),
                               .a = m.a.raw(),
                               .b = m.b.raw(),
                               .beta = m.accumulate || m.addend ? 1.0 : 0.0,
                               .addend = m.addend ? m.addend.raw() : m.c.raw(),
                               .scale_a = m.scale_a ? m.scale_a.raw() : nullptr,
                               .scale_b = m.scale_b ? m.scale_b.raw() : nullptr,
                               .workspace = workspace,
                               .stream = stream.native()};
  // Micro-batches without padding have ever other sizes: what was planned for the old ones is let go.
  if (plans_.size() >= kMostPlans && !plans_.contains(form)) plans_.clear();
  std::unique_ptr<ProductPlan>& kept = plans_[form];
  if (!kept) {
    auto made = std::make_unique<ProductPlan>(form, handle_);
    made->chosen = choose(form, *made, m, call);
    kept = std::move(made);
  }
  check_product(kept->multiply(kept->chosen, call), "cublasLtMatmul");
}

ProductSite product_site(lockstep::Stream&) {
  return {.gpu = gpu_name(), .library = fmt::format("cuBLASLt {}", cublas_lt().version())};
}

void set_product_choices(const ProductChoices& given, bool autotune, lockstep::Stream& stream) {
  Products::of(Stream::of(stream)).set_choices(given, autotune);
}

ProductChoices product_choices(lockstep::Stream& stream) { return Products::of(Stream::of(stream)).choices(); }

bool new_product_choices(lockstep::Stream& stream) { return Products::of(Stream::of(stream)).take_news(); }

}  // namespace lockstep::cuda
