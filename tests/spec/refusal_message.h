// What every message of a refused file has, and the words that one of them is to have.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {

// One line that begins with the file's name and has a remedy.
inline void expect_message(const UserError& error, ExitCode code, const std::string& file,
                           const std::vector<std::string>& words) {
  const std::string what = error.what();
  EXPECT_EQ(error.code(), code) << what;
  EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  EXPECT_EQ(what.find(file), 0u) << what;
  EXPECT_NE(what.find("; "), std::string::npos) << "no remedy: " << what;
  for (const std::string& word : words) EXPECT_NE(what.find(word), std::string::npos) << word << " not in: " << what;
}

}  // namespace lockstep
