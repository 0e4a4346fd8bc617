#include "spec/text/bounded_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "spec/text/text_input.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

// The parser calls these from left to right; false ends it.
class Look {
 public:
  Look(const JsonBounds& bounds, JsonFault& fault) : bounds_(bounds), fault_(fault) {}

  bool null() { return count(); }
  bool boolean(bool) { return count(); }
  bool number_integer(Json::number_integer_t) { return count(); }
  bool number_unsigned(Json::number_unsigned_t) { return count(); }
  bool number_float(Json::number_float_t, const std::string&) { return count(); }
  bool string(std::string&) { return count(); }
  bool binary(Json::binary_t&) { return count(); }
  bool start_array(std::size_t) { return open(); }
  bool end_array() { return close(); }
  bool start_object(std::size_t) { return open(); }
  bool end_object() { return close(); }
  bool key(std::string& name) {
    if (!count()) return false;
    auto& keys = open_.back();
    if (keys.contains(name)) {
      fault_.repeated = name;
      return beyond(fmt::format("has {} twice in one object", quote_text(name)));
    }
    if (keys.size() == bounds_.most_keys)
      return beyond(fmt::format("has an object of more than {} keys", bounds_.most_keys));
    keys.insert(std::move(name));
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const Json::exception& error) {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) return beyond("holds a number that no machine type can hold");
    fault_.invalid_at = std::max<std::size_t>(1, at);
    return false;
  }

 private:
  bool beyond(std::string problem) {
    fault_.problem = std::move(problem);
    return false;
  }
  bool count() {
    return ++values_ <= bounds_.most_values || beyond(fmt::format("holds more than {} values", bounds_.most_values));
  }
  bool open() {
    open_.emplace_back();
    if (open_.size() > bounds_.deepest) return beyond(fmt::format("is nested deeper than {}", bounds_.deepest));
    return count();
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonBounds& bounds_;
  JsonFault& fault_;
  std::vector<std::unordered_set<std::string>> open_;  // the keys of each object that is being read; none of a list
  std::size_t values_ = 0;
};

}  // namespace

std::string JsonFault::text() const {
  return problem.empty() ? fmt::format("is not valid JSON at byte {}", invalid_at) : problem;
}

std::optional<JsonFault> find_json_fault(std::string_view text, const JsonBounds& bounds) {
  JsonFault fault;
  Look look(bounds, fault);
  const std::size_t zero = text.find('\0');  // the parser would take it for the end of the text
  const bool whole = Json::sax_parse(text.substr(0, zero), &look);
  if (whole && zero == text.npos) return std::nullopt;
  if (whole) fault.invalid_at = zero + 1;
  return fault;
}

}  // namespace lockstep
