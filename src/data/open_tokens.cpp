#include "data/open_tokens.h"

#include <array>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "data/elsewhere/foreign_tokens.h"
#include "data/token_file.h"

namespace lockstep {

namespace {

// llm.c: 256 integers of 32 bits, of which the first three say what follows.
constexpr std::size_t kLlmcHeaderBytes = 1024;
constexpr std::uint32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;
constexpr std::uint32_t kLlmcGpt2Version = 1, kLlmcLlama3Version = 7;

using Beginning = std::array<std::byte, 16>;

Beginning beginning_of(const std::filesystem::path& path) {
  Beginning bytes{};
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return bytes;  // opening it says what is wrong
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  return bytes;
}

std::uint32_t word_at(const Beginning& bytes, std::size_t index) {
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + index * 4, sizeof word);
  return word;
}

bool begins_with(const Beginning& bytes, std::string_view magic) {
  return std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

std::unique_ptr<DocumentTokens> open_llmc(const std::filesystem::path& path, const Beginning& bytes,
                                          std::int64_t vocabulary) {
  const bool gpt2 = word_at(bytes, 0) == kLlmcGpt2;
  const std::uint32_t version = word_at(bytes, 1), known = gpt2 ? kLlmcGpt2Version : kLlmcLlama3Version;
  if (version != known)
    throw UserError(
        ExitCode::bad_input_file,
        fmt::format("{}: is llm.c's form of version {}; version {} can be read", path.string(), version, known),
        "make the file again with a current llm.c");
  return std::make_unique<ForeignTokens>(path, gpt2 ? "llm.c's form of GPT-2's ids" : "llm.c's form of Llama 3's ids",
                                         gpt2 ? StoredId::u16 : StoredId::u32, kLlmcHeaderBytes, word_at(bytes, 2),
                                         vocabulary);
}

}  // namespace

std::unique_ptr<DocumentTokens> open_tokens(const std::filesystem::path& path, TokenType type,
                                            std::int64_t vocabulary) {
  const Beginning bytes = beginning_of(path);
  std::filesystem::path idx = path, bin = path;
  const bool named_idx = path.extension() == ".idx" || begins_with(bytes, kMegatronMagic);
  idx.replace_extension(".idx"), bin.replace_extension(".bin");
  std::error_code ignored;
  const bool own = begins_with(bytes, kTokenFileMagic);
  const bool megatron = named_idx || (!own && path.extension() == ".bin" && std::filesystem::exists(idx, ignored));
  const bool llmc = word_at(bytes, 0) == kLlmcGpt2 || word_at(bytes, 0) == kLlmcLlama3;
  if (type != TokenType::named) {
    const std::string_view form = own        ? "a token file"
                                  : megatron ? "a Megatron-LM dataset"
                                  : llmc     ? "llm.c's form"
                                             : "";
    if (!form.empty())
      throw UserError(ExitCode::bad_input_file,
                      fmt::format("{}: is {}, which says its type itself", path.string(), form), "leave its type out");
    const bool narrow = type == TokenType::u16;
    return std::make_unique<ForeignTokens>(path, narrow ? "ids of 16 bits" : "ids of 32 bits",
                                           narrow ? StoredId::u16 : StoredId::u32, 0, std::nullopt, vocabulary);
  }
  if (named_idx && !std::filesystem::exists(bin, ignored))
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: there is no {}", path.string(), bin.string()),
                    "put the .bin beside its .idx");
  if (megatron) return std::make_unique<ForeignTokens>(bin, idx, vocabulary);
  if (llmc) return open_llmc(path, bytes, vocabulary);
  if (!own && path.extension() == ".bin" && std::filesystem::is_regular_file(path, ignored))
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: does not say what it holds", path.string()),
                    "say its type, as in token_type = \"u16\" (nanoGPT's) or \"u32\", or put its .idx beside it");
  return std::make_unique<TokenFile>(path);
}

}  // namespace lockstep
