// Training whose offloaded state is on a disk that fails (tests/faulty_disk/faulty_disk.cpp).
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "support/program.h"
#include "support/sanitizer.h"

namespace lockstep::tests {

// Why there can be none here, in words for GTEST_SKIP; empty: there can.
inline std::string no_faulty_disk_here() {
  return kUnderSanitizer ? "a sanitizer wants to be loaded before the library with the faults" : "";
}

// Runs the program with this fault, as in "write:12:ENOSPC".
inline Outcome run_on_faulty_disk(const std::string& fault, const std::vector<std::string>& arguments) {
  const std::filesystem::path library = std::filesystem::path(LOCKSTEP_BINARY).parent_path() / "libfaulty_disk.so";
  return Program(arguments, "/", {"env", "LD_PRELOAD=" + library.string(), "FAULTY_DISK=" + fault}).wait();
}

}  // namespace lockstep::tests
