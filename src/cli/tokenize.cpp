#include "cli/tokenize.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <vector>

#include "base/error.h"
#include "base/output_file.h"
#include "data/byte_tokenizer.h"
#include "data/text_source.h"
#include "data/token_file_writer.h"
#include "data/tokenized_text.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

struct TokenizeSettings {
  std::vector<std::string> text;
  std::string out, tokenizer;
};

void print_written(std::int64_t tokens, std::int64_t documents, std::int64_t vocabulary, const std::string& out) {
  fmt::print("{} tokens of {} documents, vocabulary {}: {}\n", grouped_digits(tokens), grouped_digits(documents),
             vocabulary, out);
}

// One document in memory at a time.
int tokenize_with(const TokenizeSettings& s) {
  DocumentEncoder encoder(s.tokenizer);
  require_output_file(s.out, fmt::format("--out {}", quote_text(s.out)));
  TokenFileWriter writer(s.out, encoder.tokenizer().vocabulary());
  std::int64_t tokens = 0, documents = 0;
  each_text_document(s.text, [&](const std::filesystem::path& file, std::string_view text) {
    if (const std::size_t valid = valid_utf8(text); valid != text.size())
      fmt::print(stderr, "lockstep: {}: byte {} is not UTF-8; such bytes become U+FFFD\n", file.string(), valid);
    const std::span<const std::int32_t> ids = encoder.encode(text);
    writer.add(ids);
    tokens += std::ssize(ids);
    ++documents;
  });
  writer.finish();
  print_written(tokens, documents, encoder.tokenizer().vocabulary(), s.out);
  return static_cast<int>(ExitCode::done);
}

int run_tokenize(const TokenizeSettings& s) {
  if (!s.tokenizer.empty()) return tokenize_with(s);
  const TextSource source(s.text);
  require_output_file(s.out, fmt::format("--out {}", quote_text(s.out)));
  TokenFileWriter writer(s.out, source.vocabulary());
  std::vector<std::int32_t> document;
  constexpr std::int64_t kPiece = 1 << 20;
  std::vector<std::int32_t> piece;
  for (std::int64_t at = 0; at < source.tokens(); at += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, source.tokens() - at)));
    source.read(at, piece);
    for (const std::int32_t token : piece) {
      document.push_back(token);
      if (token != kEndOfDocument) continue;
      writer.add(document);
      document.clear();
    }
  }
  writer.finish();
  print_written(source.tokens(), source.documents(), source.vocabulary(), s.out);
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_tokenize(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<TokenizeSettings>();
  CLI::App* command = app.add_subcommand("tokenize", "Write text files and folders as one token file");
  command->footer(
      "Each byte is a token and each file a document that ends with token 256, so a model needs a vocabulary of 257.\n"
      "With --tokenizer the tokens are those of its tokenizer.json, with what its template adds, and the end of a "
      "document\n"
      "is the eos_token of its tokenizer_config.json, or a special token such as <|endoftext|> or </s>.\n"
      "A run file reads the result by data.tokens; it is mapped, so its size does not matter.\n\n"
      "Example: lockstep tokenize docs README.md --out docs.tokens\n"
      "          lockstep tokenize docs --tokenizer my-hf-folder --out docs.tokens");
  command->add_option("text", s->text, "Text files and folders")->required()->type_name("PATH");
  command->add_option("--tokenizer", s->tokenizer, "Folder with a tokenizer.json of Hugging Face [bytes]")
      ->type_name("DIR");
  command->add_option("--out", s->out, "Token file to write")->required()->type_name("FILE");
  command->callback([s, &chosen] { chosen = [s] { return run_tokenize(*s); }; });
}

}  // namespace lockstep
