// What a refusal's one line of standard error may not be, whatever it says.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep::tests {

inline std::string flaw_of_line(const std::string& err) {
  constexpr std::string_view kBegin = "lockstep: ";
  if (std::count(err.begin(), err.end(), '\n') != 1 || err.back() != '\n') return "it is not one line";
  if (!err.starts_with(kBegin)) return "it does not begin with the program's name";
  if (err.find("internal error") != err.npos) return "it is a fault of the program";
  for (const char c : err)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') return "it holds a control character";
  const std::size_t remedy = err.find("; ");
  if (remedy == err.npos || err.size() < remedy + 6) return "it has no remedy";
  return "";
}

}  // namespace lockstep::tests
