// JSON from outside, parsed in bounded time and memory.
//
// Values nested deeply, many small values, and objects with many keys take a hundred times the file's size, or a time
// that grows with its square; so a document is looked through before anything is made of it, and refused where it goes
// beyond its bounds. Repeated keys are refused too: readers disagree on which one counts.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct JsonBounds {
  std::size_t deepest = 64;
  std::size_t most_values = 1'000'000;  // keys count too
  std::size_t most_keys = 1000;         // of one object
};

struct JsonFault {
  std::string problem;         // "is nested deeper than 64"; empty where it is no JSON at all
  std::size_t invalid_at = 0;  // the byte, from 1 on, at which it is none
  std::string repeated;        // the key that is the problem, where one is
  std::string text() const;    // with "is not valid JSON at byte 5"
};
std::optional<JsonFault> find_json_fault(std::string_view text, const JsonBounds& bounds);

// Nothing where there is a fault; `problem` says which.
template <class Json>
std::optional<Json> parse_bounded_json(std::string_view text, const JsonBounds& bounds, std::string& problem) {
  if (const auto fault = find_json_fault(text, bounds)) {
    problem = fault->text();
    return std::nullopt;
  }
  return Json::parse(text);
}

}  // namespace lockstep
