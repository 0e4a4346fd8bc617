#include "data/tokenizer/normalizer.h"

#include "base/error.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

}  // namespace

Normalizer::Normalizer(const TokenizerNode& document) {
  if (document.has("normalizer")) read(document.at("normalizer"));
}

void Normalizer::read(const TokenizerNode& node) {
  const std::string type = node.type();
  if (steps_.size() == kMostTokenizerSteps)
    node.refuse(fmt::format("has more than {} steps", kMostTokenizerSteps), "use fewer");
  const auto place = [&] { return fmt::format("{}: {}: {}", node.where(), node.place(), type); };
  if (type == "Sequence") {
    node.only({"normalizers"});
    for (const TokenizerNode& item : node.items("normalizers")) read(item);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    node.only({});
    require_unicode(place());
    steps_.emplace_back(type == "NFC"    ? NormalForm::nfc
                        : type == "NFD"  ? NormalForm::nfd
                        : type == "NFKC" ? NormalForm::nfkc
                                         : NormalForm::nfkd);
  } else if (type == "Lowercase") {
    node.only({});
    require_unicode(place());
    steps_.emplace_back(Lowercase{});
  } else if (type == "Prepend") {
    node.only({"prepend"});
    steps_.emplace_back(Prepend{node.text("prepend"), fmt::format("{}: {}", node.where(), node.place())});
  } else if (type == "Replace") {
    steps_.emplace_back(std::in_place_type<Replacement>, node);
  } else if (type == "Strip") {
    node.only({"strip_left", "strip_right"});
    steps_.emplace_back(Strip{node.flag("strip_left"), node.flag("strip_right")});
  } else {
    node.unsupported("normalizer " + quote_text(type));
  }
}

void Normalizer::apply(std::string& text, std::string& spare, PatternScratch& scratch) const {
  const std::size_t most = most_bytes_of(text.size());
  for (const Step& step : steps_) {
    spare.clear();
    if (const auto* form = std::get_if<NormalForm>(&step)) {
      if (is_ascii(text)) continue;
      append_normalized(*form, text, spare);
    } else if (std::holds_alternative<Lowercase>(step)) {
      append_lowercase(text, spare);
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (text.empty()) continue;
      if (prepend->text.size() + text.size() > most) refuse_growth(prepend->where);
      spare.append(prepend->text).append(text);
    } else if (const auto* replacement = std::get_if<Replacement>(&step)) {
      if (replacement->rare(text)) continue;
      replacement->append(text, spare, scratch, most);
    } else {
      const Strip& strip = std::get<Strip>(step);
      std::size_t begin = 0, end = text.size();
      while (strip.left && begin < end && is_white_space(utf8_character(text, begin))) begin += utf8_bytes(text[begin]);
      while (strip.right && end > begin && is_white_space(utf8_character(text, utf8_before(text, end))))
        end = utf8_before(text, end);
      spare.assign(text, begin, end - begin);
    }
    text.swap(spare);
  }
}

}  // namespace lockstep
