// Safetensors files as strings, right or wrong, and what the parser says of them.
#pragma once
#include <gmock/gmock.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/safetensors_index.h"

namespace lockstep::checkpoint_tests {

inline std::string length_prefix(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

// A file with this header, right or wrong, and this many bytes of data: 0, 1, 2, …
inline std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string bytes = length_prefix(header.size()) + header;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

inline SafetensorsIndex parse(std::string_view bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "in.safetensors");
}

// What parsing says, or "" when it accepts. Any other exception leaves the test.
inline std::string refusal_to_parse(std::string_view bytes) {
  try {
    parse(bytes);
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input_file);
    const std::string text = error.what();
    EXPECT_THAT(text, testing::AllOf(testing::StartsWith("in.safetensors: byte "), testing::HasSubstr("; "),
                                     testing::Not(testing::HasSubstr("\n"))));
    EXPECT_LT(text.size(), 800u);
    return text;
  }
}

}  // namespace lockstep::checkpoint_tests
