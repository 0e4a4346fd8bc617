#include "base/output_file.h"

#include "base/error.h"

namespace lockstep {

void require_output_file(const std::filesystem::path& path, const std::string& name) {
  const auto refuse = [&](const std::string& problem, const char* remedy) {
    throw UserError(ExitCode::usage, name + ": " + problem, remedy);
  };
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    refuse(fmt::format("there is no folder '{}'", folder.string()), "make it, or name another file");
  const std::filesystem::file_status there = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(there) || !path.has_filename()) refuse("it is a folder", "name a file");
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    refuse("it is a device or a pipe, which a file cannot replace", "name a file");
}

}  // namespace lockstep
