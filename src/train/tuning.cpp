#include "train/tuning.h"

#include <fmt/format.h>

#include "kernels/product_tuning.h"

namespace lockstep {

namespace {

bool is_for(const TuningSpec& tuning, const ProductSite& site) {
  return tuning.gpu == site.gpu && tuning.library == site.library;
}

}  // namespace

void tune_products(const RunSpec& spec, Stream& stream) {
  if (stream.device() != Device::cuda) return;
  const ProductSite site = product_site(stream);
  ProductChoices choices;
  if (!spec.run.autotune) choices = built_in_tuning(site.gpu, site.library).products;
  if (is_for(spec.tuning, site))
    for (const auto& [form, algorithm] : spec.tuning.products) choices[form] = algorithm;
  set_product_choices(choices, spec.run.autotune, stream);
}

std::optional<std::string> ignored_tuning(const TuningSpec& tuning, Stream& stream) {
  const ProductSite site = product_site(stream);
  if (tuning == TuningSpec{} || is_for(tuning, site)) return std::nullopt;
  return fmt::format("[tuning] is ignored: it is for {} with {}, and this run is on {}", tuning.gpu, tuning.library,
                     stream.device() == Device::cuda ? fmt::format("{} with {}", site.gpu, site.library) : "the cpu");
}

TuningSpec tuning_of(Stream& stream) {
  const ProductSite site = product_site(stream);
  return {.gpu = site.gpu, .library = site.library, .products = product_choices(stream)};
}

std::optional<TuningSpec> new_tuning(Stream& stream) {
  if (!new_product_choices(stream)) return std::nullopt;
  return tuning_of(stream);
}

}  // namespace lockstep
