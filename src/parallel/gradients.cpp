#include "parallel/gradients.h"

namespace lockstep {

std::vector<Tensor> parameters_in(const UnitLayout& layout, const Tensor& flat, const Tensor& tied) {
  std::vector<Tensor> all;
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const StoredParameter& stored = layout.parameters()[p];
    const std::int64_t offset = layout.offset(static_cast<int>(p));
    const Tensor part = stored.tied ? tied.slice(0, offset - layout.owned(), stored.elements())
                                    : flat.slice(0, offset, stored.elements());
    all.push_back(part.reshape(Shape(std::span(stored.shape))));
  }
  return all;
}

}  // namespace lockstep
