// Sizes on the command line: "4096", "64KiB", "512MiB", "24GiB".
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

// Bytes; nothing for a text that is no such size, or one of 2^63 bytes or more.
std::optional<std::int64_t> parse_byte_size(std::string_view text);

}  // namespace lockstep
