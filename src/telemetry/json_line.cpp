#include "telemetry/json_line.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep {

namespace {

class JsonLineReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Told = std::function<void(JsonKeys keys, const JsonScalar& value)>;
  explicit JsonLineReader(const Told& told) : told_(told) {}

  bool start_object(std::size_t) override {
    object_ = object_ || depth_ == 0;
    return enter(false);
  }
  bool start_array(std::size_t) override { return enter(true); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(std::string& text) override {
    if (lists_ == 0 && depth_ >= 1 && depth_ <= kMostJsonKeys) std::swap(keys_[depth_ - 1], text);
    return true;
  }
  bool null() override { return tell({}); }
  bool boolean(bool value) override { return tell(value); }
  bool number_integer(std::int64_t value) override { return tell(value); }
  bool number_unsigned(std::uint64_t value) override {
    return std::in_range<std::int64_t>(value) ? tell(static_cast<std::int64_t>(value))
                                              : tell(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) override { return tell(value); }
  bool string(std::string& text) override { return tell(std::string_view(text)); }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

  bool is_object() const { return object_; }

 private:
  bool enter(bool list) {
    if (lists_ > 0 || list) ++lists_;  // how deep within a list
    ++depth_;
    return true;
  }
  bool leave() {
    if (lists_ > 0) --lists_;
    --depth_;
    return true;
  }
  bool tell(const JsonScalar& value) {
    if (lists_ == 0 && depth_ >= 1 && depth_ <= kMostJsonKeys) told_(JsonKeys(keys_).first(depth_), value);
    return true;
  }

  const Told& told_;
  std::array<std::string, kMostJsonKeys> keys_;
  std::size_t depth_ = 0, lists_ = 0;
  bool object_ = false;
};

}  // namespace

bool read_json_line(std::string_view line, const std::function<void(JsonKeys keys, const JsonScalar& value)>& told) {
  if (line.find('\0') != std::string_view::npos) return false;  // where the parser would stop
  JsonLineReader reader(told);
  return nlohmann::json::sax_parse(line.begin(), line.end(), &reader) && reader.is_object();
}

std::optional<double> number_in(const JsonScalar& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value); number && std::isfinite(*number)) return *number;
  return std::nullopt;
}

std::optional<std::int64_t> whole_number_in(const JsonScalar& value) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  return whole && *whole >= 0 ? std::optional(*whole) : std::nullopt;
}

std::string_view text_in(const JsonScalar& value) {
  const auto* text = std::get_if<std::string_view>(&value);
  return text ? *text : std::string_view();
}

}  // namespace lockstep
