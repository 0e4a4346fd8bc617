#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <span>

#include "base/checksum.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TokenizerNode checked_document(const nlohmann::json& document, const std::string& where) {
  const TokenizerNode node(document, where, "");
  node.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (const std::string version = node.text("version", "1.0"); version != "1.0")
    node.unsupported("version " + quote_text(version));
  for (const char* key : {"truncation", "padding"})
    if (node.has(key)) node.refuse(fmt::format("'{}' is not supported", key), fmt::format("set \"{}\" to null", key));
  return node;
}

std::uint64_t checksum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

}  // namespace

Tokenizer Tokenizer::load(const fs::path& folder) {
  std::error_code ignored;
  const fs::path path = fs::is_directory(folder, ignored) ? folder / "tokenizer.json" : folder;
  if (!fs::exists(path, ignored))
    throw UserError(ExitCode::bad_input_file, fmt::format("there is no {}", path.string()),
                    "name a folder with a tokenizer.json of Hugging Face");
  const MappedFile file(path);
  return {std::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), path.string()};
}

Tokenizer::Tokenizer(std::string_view json, const std::string& where)
    : Tokenizer(parse_tokenizer_json(json, where), where, json) {}

Tokenizer::Tokenizer(const nlohmann::json& document, const std::string& where, std::string_view json)
    : model_(checked_document(document, where).at("model")),
      normalizer_({document, where, ""}),
      pre_tokenizer_({document, where, ""}),
      post_processor_({document, where, ""}),
      decoder_({document, where, ""}),
      added_({document, where, ""}, model_.tokens(),
             [this](std::string_view text) {
               std::string normalized(text), spare;
               PatternScratch scratch;
               normalizer_.apply(normalized, spare, scratch);
               return normalized;
             }),
      vocabulary_(std::max({model_.tokens().end(), added_.end(), post_processor_.end()})),
      fingerprint_(checksum_of(json)) {}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  TokenizerScratch scratch;
  std::vector<std::int32_t> ids;
  encode(text, specials, ids, scratch);
  return ids;
}

void Tokenizer::encode(std::string_view text, Specials specials, std::vector<std::int32_t>& ids,
                       TokenizerScratch& scratch) const {
  std::string repaired;
  if (valid_utf8(text) != text.size()) text = repaired = utf8_of_bytes(text);
  const auto encode_text = [&] {
    added_.split(
        text, false, [&](const AddedToken& token) { ids.push_back(token.id); },
        [&](std::string_view between, std::size_t at) { encode_between(between, at == 0, ids, scratch); });
  };
  if (specials == Specials::add)
    post_processor_.apply(encode_text, [&](std::int32_t id) { ids.push_back(id); });
  else
    encode_text();
}

void Tokenizer::encode_between(std::string_view text, bool first, std::vector<std::int32_t>& ids,
                               TokenizerScratch& s) const {
  if (!normalizer_.empty()) {
    s.text.assign(text);
    normalizer_.apply(s.text, s.spare, s.patterns);
    text = s.text;
  }
  added_.split(
      text, true, [&](const AddedToken& token) { ids.push_back(token.id); },
      [&](std::string_view between, std::size_t at) { encode_normalized(between, first && at == 0, ids, s); });
}

void Tokenizer::encode_normalized(std::string_view text, bool first, std::vector<std::int32_t>& ids,
                                  TokenizerScratch& s) const {
  if (pre_tokenizer_.gives_bytes())
    pre_tokenizer_.split(text, first, s.patterns,
                         [&](std::string_view word) { model_.encode_bytes(word, ids, s.words); });
  else
    pre_tokenizer_.split(text, first, s.patterns,
                         [&](std::string_view word) { model_.encode_text(word, ids, s.words); });
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, Specials specials) const {
  std::vector<std::string> texts;
  for (const std::int32_t id : ids) {
    const auto text = text_of(id);
    if (!text || (specials == Specials::skip && added_.special(*text))) continue;
    texts.emplace_back(*text);
  }
  PatternScratch scratch;
  return decoder_.decode(std::move(texts), scratch);
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = added_.find(token)) return added->id;
  const std::int32_t id = model_.tokens().id_of(token);
  return id == TokenTable::kAbsent ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> Tokenizer::text_of(std::int32_t token) const {
  if (const AddedToken* added = added_.find(token)) return added->text;
  if (!model_.tokens().has(token)) return std::nullopt;
  return model_.tokens().text_of(token);
}

std::optional<std::int32_t> find_end_of_document(const Tokenizer& tokenizer, const fs::path& config) {
  constexpr std::size_t kMostConfigBytes = 16 << 20;
  std::error_code ignored;
  if (fs::exists(config, ignored)) {
    const std::string where = config.string();
    const nlohmann::json document =
        parse_tokenizer_json(read_text_file(config, kMostConfigBytes, ExitCode::bad_input_file), where);
    const TokenizerNode node(document, where, "");
    if (node.has("eos_token")) {
      const TokenizerNode end = node.at("eos_token");
      const std::string text = end.value().is_object() ? end.text("content") : node.text("eos_token");
      if (const auto id = tokenizer.id_of(text)) return id;
      end.refuse(fmt::format("{} is not in the vocabulary", quote_text(text)), "name a token of tokenizer.json");
    }
  }
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|end|>", "<|im_end|>"})
    if (const AddedToken* token = tokenizer.added().find(std::string_view(name)); token != nullptr && token->special)
      return token->id;
  return std::nullopt;
}

std::int32_t end_of_document(const Tokenizer& tokenizer, const fs::path& folder) {
  if (const auto id = find_end_of_document(tokenizer, folder / "tokenizer_config.json")) return *id;
  throw UserError(ExitCode::bad_input_file, fmt::format("{} does not say which token ends a document", folder.string()),
                  "write {\"eos_token\": \"…\"} to its tokenizer_config.json");
}

}  // namespace lockstep
