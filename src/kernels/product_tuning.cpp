#include "kernels/product_tuning.h"

namespace lockstep {

ProductSite product_site(Stream& stream) {
  return stream.device() == Device::cuda ? cuda::product_site(stream) : ProductSite{};
}

void set_product_choices(const ProductChoices& given, bool autotune, Stream& stream) {
  if (stream.device() == Device::cuda) cuda::set_product_choices(given, autotune, stream);
}

ProductChoices product_choices(Stream& stream) {
  return stream.device() == Device::cuda ? cuda::product_choices(stream) : ProductChoices{};
}

bool new_product_choices(Stream& stream) {
  return stream.device() == Device::cuda && cuda::new_product_choices(stream);
}

}  // namespace lockstep
