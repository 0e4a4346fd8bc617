// Any bytes at all, as a line of JSON lines: what the scanner takes a JSON library takes, with the same text, and what
// it refuses as no JSON no library takes.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "data/corpus/json_text.h"

namespace {

void require(bool claim) {
  if (!claim) std::abort();
}

// The library refuses numbers that no double holds, which are JSON all the same.
bool may_hold_a_huge_number(std::string_view line) {
  std::size_t digits = 0;
  for (const char c : line) {
    digits = c >= '0' && c <= '9' ? digits + 1 : c == '.' || c == '-' || c == '+' ? digits : 0;
    if (digits >= 300) return true;
    if (c == 'e' || c == 'E') return line.find_first_of("0123456789") != line.npos && line.size() > 12;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  std::string text, problem;
  const bool taken = lockstep::json_text(line, "text", text, problem);
  require(taken == problem.empty());
  require(problem.find('\n') == problem.npos && problem.size() < 300);
  if (line.find('\0') != line.npos) return 0;      // which ends the text for the library
  if (line.starts_with("\xEF\xBB\xBF")) return 0;  // the library passes over it; the reader of lines does so before
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  const bool whole = json.is_object();
  if (!whole && may_hold_a_huge_number(line)) return 0;
  if (taken) {
    require(whole && json.contains("text") && json["text"].is_string());
    require(json["text"].get<std::string>() == text);
  } else if (problem.starts_with("has ")) {
    require(whole);
    require(!problem.starts_with("has no key") || !json.contains("text"));
  } else if (problem.starts_with("is not JSON")) {
    require(!whole || problem.find("too deep") != problem.npos);
  }
  return 0;
}
