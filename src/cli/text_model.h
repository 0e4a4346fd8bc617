// A model that a command reads or writes text with: a checkpoint or a Hugging Face folder, and its tokenizer.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf_folder.h"
#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "spec/model/model_spec.h"

namespace lockstep {

struct TextModel {
  std::optional<Checkpoint> checkpoint;  // one of the two
  std::optional<HfFolder> hf;
  ModelSpec spec;
  bool bytes = false;             // its tokens are bytes of text
  std::filesystem::path folder;   // of the tokenizer's files, if its tokens are not
  std::string prefix;             // of their names there
  std::optional<Tokenizer> text;  // where there is one
  std::optional<std::int32_t> document_end;
  std::vector<std::int32_t> ends;  // the tokens that end a text

  std::filesystem::path file(std::string_view name) const { return folder / (prefix + std::string(name)); }
};

// "eos_token_id" of a generation_config.json, one or several: those that end an answer, not only a document. None where
// there is no such file.
std::vector<std::int32_t> configured_ends(const std::filesystem::path& generation_config);

// A run folder, a checkpoint or a Hugging Face folder; `as_text`: with its tokenizer. UserError naming what is wrong.
TextModel open_text_model(const std::string& folder, bool as_text);

}  // namespace lockstep
