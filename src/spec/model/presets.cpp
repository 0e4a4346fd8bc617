#include "spec/model/presets.h"

#include <algorithm>

#include "spec/model/model_toml.h"

namespace lockstep {

std::optional<ModelSpec> preset(std::string_view name) {
  for (const EmbeddedText& file : embedded_models()) {
    if (file.name == name) return parse_model_toml(file.text, "preset " + std::string(name));
  }
  return std::nullopt;
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const EmbeddedText& file : embedded_models()) names.push_back(file.name);
  std::sort(names.begin(), names.end());  // the build's order is of file names, where '-' and '.' differ
  return names;
}

}  // namespace lockstep
