#include "data/tokenizer/token_decoder.h"

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

using Texts = std::vector<std::string>;

std::string join_texts(const Texts& texts, std::string_view between) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) all += between;
    all += texts[i];
  }
  return all;
}

// A token that is not spelled in the alphabet throughout (a special one) stands for itself.
std::string decode_letters(const Texts& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const std::size_t before = bytes.size();
    for (std::size_t at = 0; at < token.size(); at += utf8_bytes(token[at])) {
      const int byte = byte_of_letter(utf8_character(token, at));
      if (byte < 0) {
        bytes.resize(before);
        bytes += token;
        break;
      }
      bytes += static_cast<char>(byte);
    }
  }
  return utf8_of_bytes(bytes);
}

int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

Texts decode_fallbacks(const Texts& tokens) {
  Texts out;
  std::string bytes;
  const auto flush = [&] {
    if (valid_utf8(bytes) == bytes.size()) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const int byte = fallback_byte(token); byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      flush();
      out.push_back(token);
    }
  }
  flush();
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = 0; (at = text.find(from, done)) != std::string_view::npos; done = at + from.size())
    out.append(text, done, at - done).append(to);
  return out.append(text, done, text.size() - done);
}

}  // namespace

TokenDecoder::TokenDecoder(const TokenizerNode& document) : present_(document.has("decoder")) {
  if (present_) read(document.at("decoder"));
}

void TokenDecoder::read(const TokenizerNode& node) {
  const std::string type = node.type();
  if (steps_.size() == kMostTokenizerSteps)
    node.refuse(fmt::format("has more than {} steps", kMostTokenizerSteps), "use fewer");
  if (type == "Sequence") {
    node.only({"decoders"});
    for (const TokenizerNode& item : node.items("decoders")) read(item);
  } else if (type == "ByteLevel") {
    node.only({"add_prefix_space", "trim_offsets", "use_regex"});
    steps_.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    node.only({});
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    node.only({});
    steps_.emplace_back(Fuse{});
  } else if (type == "Metaspace") {
    node.only({"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
    const std::string scheme = node.text("prepend_scheme", "always");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      node.unsupported("prepend_scheme " + quote_text(scheme));
    if (!node.flag("add_prefix_space", true) && scheme != "never")
      node.refuse("add_prefix_space is false and prepend_scheme is not \"never\"", "say the same in both");
    Metaspace step{"", scheme != "never"};
    append_utf8(step.replacement, node.character("replacement"));
    steps_.emplace_back(std::move(step));
  } else if (type == "Strip") {
    node.only({"content", "start", "stop"});
    Strip step{"", node.number("start", 1 << 30), node.number("stop", 1 << 30)};
    append_utf8(step.character, node.character("content"));
    steps_.emplace_back(std::move(step));
  } else if (type == "Replace") {
    steps_.emplace_back(std::in_place_type<Replacement>, node);
  } else {
    node.unsupported("decoder " + quote_text(type));
  }
}

std::string TokenDecoder::decode(Texts tokens, PatternScratch& scratch) const {
  if (!present_) return join_texts(tokens, " ");
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  const std::size_t most = most_bytes_of(bytes);
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) {
      tokens = {decode_letters(tokens)};
    } else if (std::holds_alternative<ByteFallback>(step)) {
      tokens = decode_fallbacks(tokens);
    } else if (std::holds_alternative<Fuse>(step)) {
      tokens = {join_texts(tokens, "")};
    } else if (const auto* meta = std::get_if<Metaspace>(&step)) {
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replace_all(tokens[i], meta->replacement, i == 0 && meta->strips_first ? "" : " ");
    } else if (const auto* strip = std::get_if<Strip>(&step)) {
      for (std::string& token : tokens) {
        std::string_view left = token;
        for (std::int64_t n = 0; n < strip->start && left.starts_with(strip->character); ++n)
          left.remove_prefix(strip->character.size());
        for (std::int64_t n = 0; n < strip->stop && left.ends_with(strip->character); ++n)
          left.remove_suffix(strip->character.size());
        token = std::string(left);
      }
    } else {
      std::size_t left = most;
      for (std::string& token : tokens) {
        std::string replaced;
        std::get<Replacement>(step).append(token, replaced, scratch, left);
        left -= replaced.size();
        token = std::move(replaced);
      }
    }
  }
  return join_texts(tokens, "");
}

}  // namespace lockstep
