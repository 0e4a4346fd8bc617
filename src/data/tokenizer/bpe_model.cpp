#include "data/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

constexpr std::string_view kLowLine = "\xE2\x96\x81";  // U+2581, sentencepiece's space
constexpr const char* kSaveAgain = "save it again with Hugging Face tokenizers";

}  // namespace

BpeModel::BpeModel(const TokenizerNode& model) : where_(model.where()) {
  model.require_object();
  // Files of old versions do not say it; of the models with merges there is one.
  const std::string type = model.has("type") || !model.has("merges") ? model.type() : "BPE";
  if (type != "BPE") model.unsupported("model " + quote_text(type));
  model.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
              "ignore_merges", "vocab", "merges"});
  if (model.has("dropout") && (!model.value()["dropout"].is_number() || model.value()["dropout"].get<double>() != 0))
    model.unsupported("dropout");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.text(affix, "").empty()) model.unsupported(affix);
  fuse_unknown_ = model.flag("fuse_unk", false);
  byte_fallback_ = model.flag("byte_fallback", false);
  ignore_merges_ = model.flag("ignore_merges", false);
  read_vocabulary(model);
  read_merges(model);
  has_unknown_ = model.has("unk_token");
  if (has_unknown_) {
    unknown_text_ = model.text("unk_token");
    unknown_ = tokens_.id_of(unknown_text_);
    if (std::string_view(unknown_text_).ends_with(kLowLine)) cuts_at_spaces_ = false;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto i = static_cast<std::size_t>(byte);
    letters_[i] = tokens_.id_of(spell_bytes(std::string(1, static_cast<char>(byte))));
    fallbacks_[i] = byte_fallback_ ? tokens_.id_of(fmt::format("<0x{:02X}>", byte)) : TokenTable::kAbsent;
    if (byte < 128) ascii_[i] = tokens_.id_of(std::string(1, static_cast<char>(byte)));
  }
}

void BpeModel::read_vocabulary(const TokenizerNode& model) {
  const TokenizerNode node = model.at("vocab");
  node.require_object();
  if (node.value().empty()) node.refuse("is empty", kSaveAgain);
  tokens_.reserve(node.value().size());
  for (const auto& [text, id] : node.value().items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostTokenIds))
      node.refuse(fmt::format("the id of {} is no whole number below {}", quote_text(text), kMostTokenIds), kSaveAgain);
    if (!tokens_.add(text, id.get<std::int32_t>()))
      node.refuse(fmt::format("{} has the id {} of another token", quote_text(text), id.get<std::int32_t>()),
                  "give each token an id of its own");
  }
}

void BpeModel::read_merges(const TokenizerNode& model) {
  const TokenizerNode node = model.at("merges");
  if (!node.value().is_array()) node.refuse(fmt::format("is {}, not a list", node.value().type_name()), kSaveAgain);
  merges_.reserve(node.value().size());
  cuts_at_spaces_ = tokens_.id_of(kLowLine) != TokenTable::kAbsent;
  std::string merged;
  std::uint32_t rank = 0;
  for (const nlohmann::json& item : node.value()) {
    const auto refuse = [&](const std::string& problem) {
      node.refuse(fmt::format("merge {} {}", rank, problem), kSaveAgain);
    };
    std::string_view left, right;
    if (item.is_string()) {
      const std::string_view line = item.get_ref<const std::string&>();
      const std::size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
        refuse(fmt::format("{} is not two tokens with a space between", quote_text(line)));
      left = line.substr(0, space), right = line.substr(space + 1);
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      left = item[0].get_ref<const std::string&>(), right = item[1].get_ref<const std::string&>();
    } else {
      refuse("is not two tokens");
    }
    merged.assign(left).append(right);
    const std::int32_t ids[] = {tokens_.id_of(left), tokens_.id_of(right), tokens_.id_of(merged)};
    for (const std::int32_t id : ids)
      if (id == TokenTable::kAbsent)
        refuse(fmt::format("{} {} needs a token that is not in the vocabulary", quote_text(left), quote_text(right)));
    merges_.set(ids[0], ids[1], rank++, ids[2]);
    if (right.starts_with(kLowLine) && !left.ends_with(kLowLine)) cuts_at_spaces_ = false;
  }
}

std::int32_t BpeModel::unknown_for(std::string_view character) const {
  if (unknown_ == TokenTable::kAbsent)
    throw UserError(ExitCode::bad_input_file,
                    fmt::format("{}: a text has {}, which is not in the vocabulary, and neither is unk_token {}",
                                where_, quote_text(character), quote_text(unknown_text_)),
                    "add the unknown token to the vocabulary");
  return unknown_;
}

void BpeModel::spell_characters(std::string_view word, std::vector<std::int32_t>& symbols) const {
  // An unknown character waits, so that those after it can be fused with it. As in the reference, one that falls back
  // to bytes does not end the wait.
  bool waiting = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = utf8_bytes(word[at]);
    const std::string_view character = word.substr(at, bytes);
    at += bytes;
    const std::int32_t id = bytes == 1 ? ascii_[static_cast<unsigned char>(character[0])] : tokens_.id_of(character);
    if (id != TokenTable::kAbsent) {
      if (waiting) symbols.push_back(unknown_);
      waiting = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_) {
      const std::size_t before = symbols.size();
      bool whole = true;
      for (const char byte : character) {
        symbols.push_back(fallbacks_[static_cast<unsigned char>(byte)]);
        whole = whole && symbols.back() != TokenTable::kAbsent;
      }
      if (whole) continue;
      symbols.resize(before);
    }
    if (!has_unknown_) continue;
    unknown_for(character);
    if (waiting && !fuse_unknown_) symbols.push_back(unknown_);
    waiting = true;
  }
  if (waiting) symbols.push_back(unknown_);
}

void BpeModel::spell_in_bytes(std::string_view word, std::vector<std::int32_t>& symbols) const {
  for (const char byte : word) {
    const std::int32_t id = letters_[static_cast<unsigned char>(byte)];
    if (id == TokenTable::kAbsent) {  // rare: a vocabulary without some byte
      symbols.clear();
      return spell_characters(spell_bytes(word), symbols);
    }
    symbols.push_back(id);
  }
}

void BpeModel::encode_word(std::string_view word, Spelling spelling, std::vector<std::int32_t>& ids,
                           BpeWords& words) const {
  WordCache::Entry* place = nullptr;
  if (word.size() <= WordCache::kLongestWord) {
    place = &words.cache.place(hash_of(word));
    if (WordCache::holds(*place, word)) {
      ids.insert(ids.end(), place->ids.begin(), place->ids.begin() + place->count);
      return;
    }
  }
  std::vector<std::int32_t>& symbols = words.scratch.symbols;
  symbols.clear();
  std::int32_t whole = TokenTable::kAbsent;
  if (ignore_merges_) whole = tokens_.id_of(spelling == Spelling::bytes ? spell_bytes(word) : std::string(word));
  if (whole != TokenTable::kAbsent) {
    symbols.push_back(whole);
  } else {
    spelling == Spelling::bytes ? spell_in_bytes(word, symbols) : spell_characters(word, symbols);
    merge_symbols(merges_, words.scratch);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (place != nullptr) WordCache::keep(*place, word, symbols);
}

void BpeModel::encode_bytes(std::string_view word, std::vector<std::int32_t>& ids, BpeWords& words) const {
  if (!word.empty()) encode_word(word, Spelling::bytes, ids, words);
}

void BpeModel::encode_text(std::string_view word, std::vector<std::int32_t>& ids, BpeWords& words) const {
  if (word.empty()) return;
  if (cuts_at_spaces_ && !ignore_merges_) {
    std::size_t begin = 0;
    for (std::size_t at = word.find(kLowLine); at != std::string_view::npos; at = word.find(kLowLine, at)) {
      if (at > begin && !word.substr(0, at).ends_with(kLowLine)) {
        encode_word(word.substr(begin, at - begin), Spelling::characters, ids, words);
        begin = at;
      }
      at += kLowLine.size();
    }
    word.remove_prefix(begin);
  }
  encode_word(word, Spelling::characters, ids, words);
}

}  // namespace lockstep
