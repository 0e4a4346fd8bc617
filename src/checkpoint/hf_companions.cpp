#include "checkpoint/hf_companions.h"

#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lockstep {

namespace fs = std::filesystem;

bool is_kept_name(std::string_view name) {
  return name.starts_with(kCompanionPrefix) &&
         std::ranges::find(kCompanionNames, name.substr(kCompanionPrefix.size())) != kCompanionNames.end();
}

std::string read_companion(const fs::path& file) {
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  if (std::ssize(bytes) > kMaxCompanionBytes)
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: has {} bytes, and checkpoints keep at most {} of such a file", file.string(),
                                bytes.size(), kMaxCompanionBytes),
                    "is it what its name says? If so, move it out of the folder");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<HfCompanion> read_companions(const fs::path& folder) {
  std::vector<HfCompanion> found;
  std::error_code ignored;
  for (const std::string_view name : kCompanionNames)
    if (const fs::path file = folder / name; fs::exists(file, ignored))
      found.push_back({std::string(name), read_companion(file)});
  return found;
}

std::vector<HfCompanion> read_tokenizer_companions(const fs::path& folder) {
  std::vector<HfCompanion> found = read_companions(folder);
  std::erase_if(found, [](const HfCompanion& companion) {
    return companion.name == kHfConfigName || companion.name == kGenerationConfigName;
  });
  return found;
}

std::string_view kept_config(const std::vector<HfCompanion>& companions) {
  const auto at = std::ranges::find(companions, kHfConfigName, &HfCompanion::name);
  return at == companions.end() ? std::string_view{} : std::string_view(at->bytes);
}

}  // namespace lockstep
