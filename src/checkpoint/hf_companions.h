// What a Hugging Face folder holds besides weights: the tokenizer's files, chat templates, generation settings, and
// config.json with the ids of special tokens.
//
// Training reads none of them, but whoever uses the model afterwards needs them. So a run that starts from such a
// folder keeps them, byte for byte, in each of its checkpoints (manifest.h), as files "hf-NAME"; a run that starts from
// one of these keeps them too, and an export writes them out. They are read once, when the run begins; the folder is
// not needed after that.
//
// Failure: UserError (bad_input_file) naming the file.
#pragma once
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct HfCompanion {
  std::string name;  // in the Hugging Face folder
  std::string bytes;
  bool operator==(const HfCompanion&) const = default;
};

inline constexpr std::string_view kHfConfigName = "config.json";
inline constexpr std::string_view kGenerationConfigName = "generation_config.json";
inline constexpr auto kCompanionNames = std::to_array<std::string_view>(
    {kHfConfigName, kGenerationConfigName, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
     "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "tokenizer.model.v3",
     "tekken.json", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"});
inline constexpr std::string_view kCompanionPrefix = "hf-";    // of their names in a checkpoint
inline constexpr std::int64_t kMaxCompanionBytes = 256 << 20;  // the largest tokenizers have 40 MB

// "hf-" and one of the names above.
bool is_kept_name(std::string_view name);

// Those of the names that the folder has, in their order. At most kMaxCompanionBytes each.
std::vector<HfCompanion> read_companions(const std::filesystem::path& folder);
// Of these, those of a tokenizer alone: for a model that has none of its own.
std::vector<HfCompanion> read_tokenizer_companions(const std::filesystem::path& folder);
std::string read_companion(const std::filesystem::path& file);

// The kept config.json; empty: none.
std::string_view kept_config(const std::vector<HfCompanion>& companions);

}  // namespace lockstep
