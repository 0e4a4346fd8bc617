// tokenizer.json documents for tests: small ones, made to be changed in one place.
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

inline std::string golden_tokenizer(const std::string& name) {
  return std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/tokenizers/" + name;
}

inline nlohmann::json golden_document(const std::string& name) {
  std::ifstream file(golden_tokenizer(name) + "/tokenizer.json");
  return nlohmann::json::parse(file);
}

// Byte-level BPE of all bytes and a few merges, with one special token.
inline nlohmann::json small_document() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary[spell_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocabulary["he"] = 256;
  vocabulary["ll"] = 257;
  vocabulary["hell"] = 258;
  vocabulary["hello"] = 259;
  vocabulary["Ġhello"] = 260;
  nlohmann::json merges = nlohmann::json::array();
  for (const auto& [left, right] : {std::pair("h", "e"), std::pair("l", "l"), std::pair("he", "ll"),
                                    std::pair("hell", "o"), std::pair("Ġ", "hello")})
    merges.push_back(nlohmann::json::array({left, right}));
  nlohmann::json special = {{"id", 261},       {"content", "<end>"},  {"single_word", false}, {"lstrip", false},
                            {"rstrip", false}, {"normalized", false}, {"special", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array({special})},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

inline Tokenizer tokenizer_of(const nlohmann::json& document) { return {document.dump(), "tokenizer.json"}; }

}  // namespace lockstep
