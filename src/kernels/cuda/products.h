// What a stream keeps of cuBLASLt: its handle, and for each form of a product met so far the algorithm that was chosen.
//
// kernels/product_tuning.h says how it is chosen. Timing writes only what the call at hand will write anyway, or, when
// that call adds to its result, a room of its own; it needs the device for itself, so a form that is first met while
// the stream is being captured has the library's first proposal.
#pragma once
#include <map>
#include <memory>

#include "kernels/cuda/product_plan.h"
#include "kernels/product_tuning.h"
#include "tensor/cuda/device.h"

namespace lockstep::cuda {

class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  static Products& of(Stream& stream);

  // c = or += op(a) · op(b), the bias left out. The workspace is the library's until the work is done.
  void multiply(const MatmulArgs& product, void* workspace, std::int64_t workspace_bytes, Stream& stream);

  void set_choices(const ProductChoices& given, bool autotune);
  const ProductChoices& choices() const { return choices_; }
  bool take_news() { return std::exchange(news_, false); }

 private:
  ProductAlgorithm choose(const ProductForm& form, const ProductPlan& plan, const MatmulArgs& product,
                          const ProductPlan::Call& call);

  cublasLtHandle_t handle_ = nullptr;
  std::map<ProductForm, std::unique_ptr<ProductPlan>> plans_;
  ProductChoices choices_;
  bool autotune_ = false;
  bool news_ = false;
};

}  // namespace lockstep::cuda
