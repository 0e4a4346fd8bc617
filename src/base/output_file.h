// A place for a file that is written beside and then renamed into it.
#pragma once
#include <filesystem>
#include <string>

namespace lockstep {

// UserError (usage) unless the path's folder is there and the path is free or a regular file: to rename over a device
// would replace it. `name` is what messages call the path, as in --out 'x'.
void require_output_file(const std::filesystem::path& path, const std::string& name);

}  // namespace lockstep
