// A small file that another process writes: its text, empty where there is none yet.
#pragma once
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep {

inline std::string text_or_nothing(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace lockstep
