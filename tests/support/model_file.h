// A model from a TOML file of its own, as those of configs/models/ are.
#pragma once
#include <filesystem>

#include "spec/model/model_toml.h"
#include "spec/text/text_input.h"

namespace lockstep::tests {

inline ModelSpec read_model_toml(const std::filesystem::path& file) {
  return parse_model_toml(read_text_file(file, 1 << 20, ExitCode::usage), file.string());
}

}  // namespace lockstep::tests
