#include "checkpoint/manifest_json.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Hears the document and remembers a key that comes twice in one object.
struct Keys final : nlohmann::json_sax<json> {
  std::vector<std::set<std::string>> open;  // of each object that is being read
  std::optional<std::string> repeated;

  bool start_object(std::size_t) override {
    open.emplace_back();
    return true;
  }
  bool end_object() override {
    open.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    if (!open.back().insert(name).second) repeated = name;
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override { return false; }
};

}  // namespace

json parse_manifest_json(std::string_view text, const std::string& where) {
  const auto fail = [&where](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::checkpoint, where + ": " + problem, remedy);
  };
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& error) {
    fail(fmt::format("not valid JSON at byte {}", std::min(error.byte, text.size())),
         "mend it or fetch the file again");
  } catch (const json::exception&) {  // a number beyond any double
    fail("holds a number that no machine type can hold", "mend it or fetch the file again");
  }
  if (!document.is_object())
    fail(fmt::format("holds {}, not an object", document.type_name()), "use another checkpoint");
  Keys keys;
  json::sax_parse(text, &keys);
  if (keys.repeated) fail(fmt::format("field {} appears twice", quote_text(*keys.repeated)), "keep one of them");
  return document;
}

}  // namespace lockstep
