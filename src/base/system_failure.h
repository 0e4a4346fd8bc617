// A call to the system that failed, as one line: "runs/a/x: write failed: No space left on device; free space there,
// …".
#pragma once
#include <filesystem>
#include <string>

namespace lockstep {

// `error` is the call's errno. The remedy is what helps against that errno.
std::string system_failure(const std::filesystem::path& path, const std::string& call, int error);

// The remedy alone, for a path and for memory that processes of one host share.
std::string remedy_of(int error);
std::string shared_memory_remedy(int error);

}  // namespace lockstep
