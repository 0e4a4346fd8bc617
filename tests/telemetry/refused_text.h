// What parsing a text from anywhere says of it: "" when it is taken, else one short line as of a bad file.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace lockstep {

// `parse` calls the text "here".
template <class Parse>
std::string refused_text(const Parse& parse) {
  try {
    parse();
    return "";
  } catch (const UserError& error) {
    const std::string said = error.what();
    EXPECT_EQ(error.code(), ExitCode::bad_input_file);
    EXPECT_TRUE(said.starts_with("here: ")) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    EXPECT_LT(said.size(), 300u);
    return said;
  }
}

}  // namespace lockstep
