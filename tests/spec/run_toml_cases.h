// What the tests of a run's TOML have in common: a small run file, a line more in it, and the message of a refusal.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "spec/run/run_toml.h"

namespace lockstep {

using Sets = std::vector<std::string>;

inline const std::filesystem::path kSource = LOCKSTEP_SOURCE_DIR;

// Four lines: [model], preset, [data], example.
inline const std::string kBase = "[model]\npreset = \"llama-1m\"\n[data]\nexample = true\n";

// The base with a line more in a section: line 2 of [model], line 4 of [data], line 6 of any other.
inline std::string with(const std::string& section, const std::string& line) {
  const std::string header = "[" + section + "]\n";
  const std::size_t at = kBase.find(header);
  if (at == std::string::npos) return kBase + header + line + "\n";
  std::string text = kBase;
  return text.insert(at + header.size(), line + "\n");
}

inline std::string without(std::string text, const std::string& line) {
  return text.erase(text.find(line + "\n"), line.size() + 1);
}

inline RunSpec parse(const std::string& text, const Sets& sets = {}) {
  return parse_run_toml(text, "a/run.toml", "/a", sets);
}

// The message of a refusal, checked for what every one has.
inline std::string refusal(const std::string& text, const Sets& sets = {}, ExitCode code = ExitCode::usage) {
  try {
    parse(text, sets);
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), code) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_NE(what.find("; "), std::string::npos) << "no remedy: " << what;
    EXPECT_TRUE(code != ExitCode::usage || what.starts_with("a/run.toml") || what.starts_with("--set ")) << what;
    return what;
  }
  ADD_FAILURE() << "accepted: " << text.substr(0, 500);
  return "";
}

struct Bad {
  const char* section;
  const char* line;
  std::vector<std::string> words;
};

inline void expect_refused(std::span<const Bad> cases) {
  for (const auto& [section, line, words] : cases) {
    SCOPED_TRACE(std::string(section) + ": " + line);
    const std::string what = refusal(with(section, line));
    for (const std::string& word : words) EXPECT_NE(what.find(word), std::string::npos) << word << " not in: " << what;
  }
}

}  // namespace lockstep
