// How fast texts become tokens, in bytes of text per second of one core.
//
//   bench_tokenizer TEXT [FOLDER…]
//
// Without folders, two tokenizers with a vocabulary of 32,000 are learned from the text itself: byte-level with GPT-2's
// split, and sentencepiece-like with byte fallback. A folder holds a tokenizer.json. Each is measured on the whole text
// as one document, with the memory of words that it has after a first pass ("warm") and without ("cold").
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr std::int64_t kVocabulary = 32'000;

std::string byte_level_document(std::string_view text) {
  WordCounts words;
  words.add(text);
  const std::vector<std::string> specials = {"<|endoftext|>"};
  return byte_level_tokenizer_json(learn_merges(words.symbols(), 256, kVocabulary - 257, 1), specials);
}

// As Llama 2's: characters that come often, <0x00> … <0xFF>, and merges of words that begin with U+2581.
std::string sentencepiece_document(std::string_view text) {
  std::map<std::string, std::int64_t> counts;
  std::map<char32_t, std::int64_t> characters;
  std::string word;
  for (std::size_t at = 0; at < text.size(); at += utf8_bytes(text[at])) {
    const bool space = text[at] == ' ';
    if (space && !word.empty()) ++counts[word], word.clear();
    word += space ? "▁" : text.substr(at, utf8_bytes(text[at]));
    ++characters[space ? U'▁' : utf8_character(text, at)];
  }
  nlohmann::json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  std::vector<std::string> texts;
  std::map<char32_t, std::int32_t> ids;
  for (const auto& [character, count] : characters) {
    if (count < 20 || character < 0x20) continue;
    ids[character] = static_cast<std::int32_t>(texts.size());
    append_utf8(texts.emplace_back(), character);
  }
  std::vector<CountedWord> words;
  for (const auto& [key, count] : counts) {
    CountedWord counted{{}, count};
    for (std::size_t at = 0; at < key.size(); at += utf8_bytes(key[at])) {
      const auto id = ids.find(utf8_character(key, at));
      if (id != ids.end()) counted.symbols.push_back(id->second);
    }
    words.push_back(std::move(counted));
  }
  const auto first = static_cast<std::int32_t>(texts.size());
  nlohmann::json merges = nlohmann::json::array();
  for (const LearnedMerge& merge : learn_merges(std::move(words), first, kVocabulary - 259 - first, 1)) {
    const std::string left = texts[static_cast<std::size_t>(merge.left)];
    const std::string right = texts[static_cast<std::size_t>(merge.right)];
    merges.push_back(nlohmann::json::array({left, right}));
    texts.push_back(left + right);
  }
  for (const std::string& token : texts) vocabulary.emplace(token, vocabulary.size());
  const nlohmann::json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  const nlohmann::json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const nlohmann::json document = {
      {"version", "1.0"},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", nlohmann::json::array({prepend, replace})}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocabulary},
        {"merges", merges}}}};
  return document.dump();
}

void measure(benchmark::State& state, const Tokenizer& tokenizer, std::string_view text, bool warm) {
  std::vector<std::int32_t> ids;
  auto scratch = std::make_unique<TokenizerScratch>();
  if (warm) tokenizer.encode(text, Specials::add, ids, *scratch);
  for (auto _ : state) {
    ids.clear();
    if (!warm) scratch = std::make_unique<TokenizerScratch>();
    tokenizer.encode(text, Specials::add, ids, *scratch);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
  state.counters["tokens"] = static_cast<double>(ids.size());
  state.counters["vocabulary"] = tokenizer.vocabulary();
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_tokenizer TEXT [FOLDER...]\n");
    return 2;
  }
  const MappedFile file(argv[1]);
  const std::string text = utf8_of_bytes({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> tokenizers;
  for (int i = 2; i < argc; ++i)
    tokenizers.emplace_back(argv[i], std::make_unique<Tokenizer>(Tokenizer::load(argv[i])));
  if (tokenizers.empty()) {
    tokenizers.emplace_back("byte-level", std::make_unique<Tokenizer>(byte_level_document(text), "byte-level"));
    tokenizers.emplace_back("sentencepiece-like",
                            std::make_unique<Tokenizer>(sentencepiece_document(text), "sentencepiece-like"));
  }
  for (const auto& [name, tokenizer] : tokenizers)
    for (const bool warm : {true, false})
      benchmark::RegisterBenchmark((name + (warm ? "/warm" : "/cold")).c_str(), [&tokenizer = *tokenizer, &text,
                                                                                 warm](benchmark::State& state) {
        measure(state, tokenizer, text, warm);
      })->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    return lockstep::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_tokenizer: {}\n", error.what());
    return 1;
  }
}
