#include "data/chat/conversation_encoder.h"

#include <algorithm>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizer/utf8.h"

namespace lockstep {

namespace {

bool is_blank(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); at += utf8_bytes(text[at]))
    if (!is_white_space(utf8_character(text, at))) return false;
  return true;
}

}  // namespace

ConversationEncoder::ConversationEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t end,
                                         std::shared_ptr<const ChatTemplate> chat)
    : tokenizer_(std::move(tokenizer)), end_(tokenizer_ ? end : kEndOfDocument), chat_(std::move(chat)) {}

void ConversationEncoder::encode_text(std::string_view text, Specials specials, std::vector<std::int32_t>& ids) {
  if (tokenizer_)
    tokenizer_->encode(text, specials, ids, scratch_);
  else
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
}

std::vector<std::size_t> ConversationEncoder::places_of(std::string_view text, const std::vector<std::size_t>& borders,
                                                        Specials specials, const std::string& where) {
  // Most often a border is one of tokens too: the parts' tokens are then those of the whole.
  std::vector<std::size_t> places;
  part_.clear();
  std::size_t from = 0;
  for (const std::size_t border : borders) {
    encode_text(text.substr(from, border - from), from == 0 ? specials : Specials::skip, part_);
    places.push_back(part_.size());
    from = border;
  }
  encode_text(text.substr(from), from == 0 ? specials : Specials::skip, part_);
  if (part_ == whole_) return places;
  std::size_t least = 0, bytes = 0;
  for (std::size_t i = 0; i < borders.size(); ++i) {
    bytes += borders[i];
    if (bytes > kMostPrefixBytes)
      throw UserError(
          ExitCode::bad_input_file,
          fmt::format("{}: its {} answers, each after all text before it, are too much to find the tokens of", where,
                      borders.size() / 2),
          "split the conversation");
    part_.clear();
    encode_text(text.substr(0, borders[i]), specials, part_);
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(part_, whole_).in1 - part_.begin());
    places[i] = least = std::max(least, common);
  }
  return places;
}

// Of whole_: without the white space after the last special token of [from, to).
std::size_t ConversationEncoder::without_blanks(std::size_t from, std::size_t to) const {
  std::size_t end = to;
  while (end > from) {
    const AddedToken* const added = tokenizer_->added().find(whole_[end - 1]);
    if (added && added->special) break;
    --end;
  }
  if (end == from || end == to) return to;
  const std::string after = tokenizer_->decode(std::span(whole_).subspan(end, to - end), Specials::add);
  return is_blank(utf8_of_bytes(after)) ? end : to;
}

ConversationEncoder::Encoded ConversationEncoder::encode(std::string_view line, const std::string& where,
                                                         std::vector<std::int32_t>& ids,
                                                         std::vector<std::uint8_t>& targets) {
  const ConversationText conversation = read_conversation(line, chat_.get(), where);
  if (conversation.answers.empty()) return {};
  const Specials specials = conversation.by_template ? Specials::skip : Specials::add;
  whole_.clear();
  encode_text(conversation.text, specials, whole_);
  std::vector<std::size_t> borders;
  for (const auto& [from, to] : conversation.answers) borders.insert(borders.end(), {from, to});
  const std::vector<std::size_t> places = places_of(conversation.text, borders, specials, where);
  const bool ends = !conversation.by_template;
  if (ends && (whole_.empty() || whole_.back() != end_)) whole_.push_back(end_);
  std::vector<std::uint8_t> marks(whole_.size());
  Encoded encoded;
  for (std::size_t i = 0; i < places.size(); i += 2) {
    std::size_t to = places[i + 1];
    if (tokenizer_ && conversation.by_template && !conversation.enclosed) to = without_blanks(places[i], to);
    if (places[i] >= to) continue;
    std::fill(marks.begin() + static_cast<std::ptrdiff_t>(places[i]), marks.begin() + static_cast<std::ptrdiff_t>(to),
              std::uint8_t{1});
    ++encoded.answers;
    encoded.last_target = whole_[to - 1];
  }
  if (encoded.answers == 0) return {};
  if (ends) {
    marks.back() = 1;
    encoded.last_target = end_;
  }
  ids.insert(ids.end(), whole_.begin(), whole_.end());
  targets.insert(targets.end(), marks.begin(), marks.end());
  return encoded;
}

}  // namespace lockstep
