// Text that comes from outside: read with a bound, and quoted so that a message stays one line whatever it holds.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

// The whole of a file of at most `limit` bytes. UserError of the given code when it is missing, not a file, or larger;
// no more than limit + 1 bytes are ever read, so a device or a growing file is no danger.
std::string read_text_file(const std::filesystem::path& file, std::size_t limit, ExitCode code);

// 'text' in single quotes, control characters replaced and the length bounded.
std::string quote_text(std::string_view text);

// The known word at the smallest edit distance from `word`, the first of several; empty when none is known.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

}  // namespace lockstep
