#include "checkpoint/hf_tensors.h"

#include <fmt/ranges.h>

#include <set>

#include "base/error.h"

namespace lockstep {

std::vector<ConstTensor> find_hf_tensors(const SafetensorsFile& file, const std::vector<LogicalTensor>& wanted) {
  const auto refuse = [&](const std::string& problem) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", file.path().string(), problem),
                    "give the weights that belong to this config.json");
  };
  std::vector<ConstTensor> found;
  std::set<std::string_view> names;
  for (const LogicalTensor& want : wanted) {
    names.insert(want.name);
    const SafetensorsEntry* entry = file.find(want.name);
    if (!entry) refuse(fmt::format("tensor '{}' is missing", want.name));
    if (entry->shape != want.shape)
      refuse(fmt::format("tensor '{}' is [{}], the model needs [{}]", want.name, fmt::join(entry->shape, ", "),
                         fmt::join(want.shape, ", ")));
    found.push_back(file.tensor(want.name));
    if (!is_float(found.back().dtype()))
      refuse(fmt::format("tensor '{}' holds {}, not floats", want.name, entry->dtype));
  }
  for (const SafetensorsEntry& entry : file.entries())
    if (!names.contains(entry.name)) refuse(fmt::format("tensor '{}' is not part of this model", entry.name));
  return found;
}

}  // namespace lockstep
