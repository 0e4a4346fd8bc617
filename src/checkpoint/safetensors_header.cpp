#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Takes the parser's events and builds entries from them. A header has a fixed form, so the state is one of a few
// places in it, and an event that does not belong to the place is refused on the spot: nothing hostile is read further
// than that.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  // Walks the text for the parser, and is where the reader learns how far the parser has come.
  struct Cursor {
    using iterator_category = std::forward_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    const char* at = nullptr;
    HeaderReader* reader = nullptr;

    reference operator*() const { return *at; }
    Cursor& operator++() {
      reader->advance(++at);
      return *this;
    }
    Cursor operator++(int) {
      const Cursor before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Cursor& other) const { return at == other.at; }
  };

  HeaderReader(std::string_view text, std::int64_t data_bytes, const std::string& where)
      : text_(text), data_bytes_(data_bytes), where_(where), at_(text.data()), token_(text.data()) {}

  SafetensorsHeader read() {
    json::sax_parse(Cursor{text_.data(), this}, Cursor{text_.data() + text_.size(), this}, this);
    return std::move(header_);
  }

  bool start_object(std::size_t) override {
    next_token();
    if (state_ == State::outside) {
      state_ = State::header;
    } else if (state_ == State::header && entry_.name == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) refuse("__metadata__ comes twice");
      state_ = State::metadata;
    } else if (state_ == State::header) {
      state_ = State::entry;
      seen_ = {};
    } else {
      refuse_value("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    next_token();
    if (state_ == State::header) {
      entry_ = {};
      entry_.name = std::move(text);
      entry_place_ = place();
    } else if (state_ == State::metadata) {
      if (header_.metadata.contains(text)) refuse("metadata key " + printable(text) + " comes twice");
      if (header_.metadata.size() == kMaxHeaderMetadata) {
        refuse(fmt::format("more than {} metadata keys", kMaxHeaderMetadata));
      }
      metadata_key_ = std::move(text);
    } else {
      const auto field = std::find(kFields.begin(), kFields.end(), text);
      if (field == kFields.end()) refuse_entry("has a field " + printable(text) + " the format does not know");
      field_ = static_cast<std::size_t>(field - kFields.begin());
      if (std::exchange(seen_[field_], true)) refuse_entry(fmt::format("has {} twice", kFields[field_]));
    }
    return true;
  }

  bool string(std::string& text) override {
    next_token();
    if (state_ == State::metadata) {
      header_.metadata.emplace(std::move(metadata_key_), std::move(text));
    } else if (state_ == State::entry && field_ == kDType) {
      if (!safetensors_bits(text)) refuse_entry("has an unknown dtype " + printable(text));
      entry_.dtype = std::move(text);
    } else {
      refuse_value("a string");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    next_token();
    if (state_ != State::entry || field_ == kDType) refuse_value("an array");
    state_ = field_ == kShape ? State::shape : State::offsets;
    offset_count_ = 0;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    next_token();
    if (state_ != State::shape && state_ != State::offsets) refuse_value("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse_entry(fmt::format("has {} in its {}, which does not fit 63 bits", value, kFields[field_]));
    }
    const auto size = static_cast<std::int64_t>(value);
    if (state_ == State::shape) {
      if (entry_.shape.size() == kMaxHeaderDims) refuse_entry(fmt::format("has more than {} dims", kMaxHeaderDims));
      entry_.shape.push_back(size);
    } else {
      if (offset_count_ == 2) refuse_entry("has more than two data_offsets");
      (offset_count_ == 0 ? entry_.begin : entry_.end) = size;
      ++offset_count_;
    }
    return true;
  }

  bool end_array() override {
    next_token();
    if (state_ == State::offsets && offset_count_ != 2) refuse_entry("needs two data_offsets, begin and end");
    state_ = State::entry;
    return true;
  }

  bool end_object() override {
    next_token();
    if (state_ == State::entry) finish_entry();
    state_ = state_ == State::header ? State::outside : State::header;
    return true;
  }

  bool null() override { return refuse_value("null"); }
  bool boolean(bool) override { return refuse_value("true or false"); }
  bool number_integer(std::int64_t) override { return refuse_value("a negative number"); }
  bool number_float(double, const std::string&) override {
    return refuse_value("a number that is not a 64-bit integer");
  }
  bool binary(json::binary_t&) override { return refuse_value("binary data"); }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    // The parser's text begins with its own name and a line and column, which mean nothing in a file that is mostly
    // binary.
    std::string_view text = error.what();
    if (const auto at = text.find("syntax error"); at != std::string_view::npos) text.remove_prefix(at);
    refuse("the header is not valid JSON: " + printable(text));
  }

 private:
  enum class State { outside, header, metadata, entry, shape, offsets };
  enum Field : std::size_t { kDType, kShape, kOffsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  // Each step of the parser. It ends its input at a zero byte as if the text ended there, so a zero is refused here.
  void advance(const char* at) {
    at_ = at;
    if (at[-1] == '\0') refuse("the header has a zero byte");
    if (at - token_ > kMaxHeaderToken)
      refuse(fmt::format("the header has a token of more than {} bytes", kMaxHeaderToken));
  }
  void next_token() { token_ = at_; }
  std::int64_t place() const { return 8 + std::max<std::int64_t>(at_ - text_.data() - 1, 0); }

  [[noreturn]] void refuse(const std::string& reason) const { refuse_safetensors(where_, place(), reason); }
  [[noreturn]] void refuse_entry(const std::string& reason) const {
    refuse("tensor " + printable(entry_.name) + " " + reason);
  }
  [[noreturn]] bool refuse_value(std::string_view found) const {
    switch (state_) {
      case State::outside:
        refuse(fmt::format("the header is {}, not an object", found));
      case State::header:
        refuse_entry(fmt::format("is {}, not an object", found));
      case State::metadata:
        refuse(fmt::format("metadata {} is {}, not a string", printable(metadata_key_), found));
      default:
        refuse_entry(fmt::format("has {} in its {}", found, kFields[field_]));
    }
  }

  // All three fields are known: compares them with each other and with the file.
  void finish_entry() {
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (!seen_[i]) refuse_entry(fmt::format("has no {}", kFields[i]));
    }
    std::optional<std::int64_t> product = *safetensors_bits(entry_.dtype);
    bool empty = false;
    for (const std::int64_t extent : entry_.shape) {
      empty |= extent == 0;
      if (product) product = checked_mul(*product, std::max<std::int64_t>(extent, 1));
    }
    if (!product) refuse_entry("has a shape whose size does not fit 63 bits");
    const std::int64_t bits = empty ? 0 : *product;
    if (bits % 8 != 0) refuse_entry(fmt::format("has {} bits, not a whole number of bytes", bits));
    if (entry_.begin > entry_.end || entry_.end > data_bytes_) {
      refuse_entry(fmt::format("has data_offsets [{}, {}), outside the {} bytes of data", entry_.begin, entry_.end,
                               data_bytes_));
    }
    if (entry_.end - entry_.begin != bits / 8) {
      refuse_entry(
          fmt::format("has {} bytes by its data_offsets, {} by its shape", entry_.end - entry_.begin, bits / 8));
    }
    if (header_.entries.size() == kMaxHeaderTensors) refuse(fmt::format("more than {} tensors", kMaxHeaderTensors));
    const auto data_begin = static_cast<std::int64_t>(8 + text_.size());
    entry_.begin += data_begin;
    entry_.end += data_begin;
    header_.entries.push_back(std::move(entry_));
    header_.places.push_back(entry_place_);
  }

  std::string_view text_;
  std::int64_t data_bytes_;
  const std::string& where_;
  const char* at_;     // one past the last byte the parser took
  const char* token_;  // where the parser stood at the last event
  State state_ = State::outside;
  bool metadata_seen_ = false;
  std::string metadata_key_;
  SafetensorsEntry entry_;
  std::int64_t entry_place_ = 0;
  std::size_t field_ = 0;
  std::array<bool, 3> seen_{};
  int offset_count_ = 0;
  SafetensorsHeader header_;
};

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view json, std::int64_t data_bytes, const std::string& where) {
  // The format asks for this byte. It also keeps out a byte order mark, which the parser would skip.
  if (json.empty() || json.front() != '{') refuse_safetensors(where, 8, "the header does not start with '{'");
  return HeaderReader(json, data_bytes, where).read();
}

void refuse_safetensors(const std::string& where, std::int64_t place, const std::string& reason) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: byte {}: {}", where, place, reason),
                  "the file is damaged or is not safetensors: download or export it again");
}

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 120;
  std::string result = "'";
  for (const char c : text.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return result + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace lockstep
