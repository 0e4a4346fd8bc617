// The models of configs/models/, and what else of configs/ is built into the program: it reads no path when it runs.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "spec/model/model_spec.h"

namespace lockstep {

// The preset of that name (the file's, without .toml); nothing when there is none.
std::optional<ModelSpec> preset(std::string_view name);

std::vector<std::string_view> preset_names();  // sorted

// What the build put inside: defined by the source that cmake/embed.cmake writes.
struct EmbeddedText {
  std::string_view name;  // the file's, without .toml
  std::string_view text;
};
std::span<const EmbeddedText> embedded_models();
std::span<const EmbeddedText> embedded_machines();  // configs/machines/, read by machine_spec.h
std::span<const EmbeddedText> embedded_tunings();   // configs/tuning/, read by tuning_spec.h
std::string_view embedded_example_run();

}  // namespace lockstep
