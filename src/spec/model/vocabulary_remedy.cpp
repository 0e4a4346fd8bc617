#include "spec/model/vocabulary_remedy.h"

#include <fmt/format.h>

namespace lockstep {

std::string vocabulary_remedy(const RunSpec& spec, std::int64_t needed) {
  if (spec.model_hf.empty() && spec.model_from.empty()) return fmt::format("use model.vocabulary = {} or more", needed);
  return fmt::format(
      "the weights of {} have a fixed vocabulary: use data.tokens = FILE with ids below {}, made with its own "
      "tokenizer (docs/formats.md has the format), or a new model by model.preset with model.vocabulary = {}",
      spec.model_hf.empty() ? "model.from" : "model.hf", spec.model.vocabulary, needed);
}

}  // namespace lockstep
