// The text of one key of a line of JSON.
//
// The line is one JSON object (RFC 8259) and is checked whole: what no JSON parser would read is refused, wherever in
// the line it is. Nothing but the key's string is kept, so a line costs a pass over its bytes. Strings are valid UTF-8,
// and so is what their escapes stand for; the key is there once. Values nest up to 512 deep.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

// Appends the key's text to `text`. Else false, and `problem` says what is wrong and at which byte: "is not JSON at
// byte 17: …" or "has no key 'text'".
bool json_text(std::string_view line, std::string_view key, std::string& text, std::string& problem);

}  // namespace lockstep
