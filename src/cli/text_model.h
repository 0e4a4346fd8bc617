// A model that a command reads or writes text with: a checkpoint, a Hugging Face folder or adapters beside their base,
// and its tokenizer.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/peft_adapters.h"
#include "data/chat/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "spec/run/run_spec.h"
#include "train/generator.h"

namespace lockstep {

struct TextModel {
  std::optional<Checkpoint> checkpoint;  // one of the three
  std::optional<HfFolder> hf;
  std::unique_ptr<PeftAdapters> adapters;
  RunSpec run;  // of the checkpoint; of adapters that in which their base is named
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

// A run folder, a checkpoint, a Hugging Face folder or one of adapters; `as_text`: with its tokenizer; `base`: what
// adapters were trained beside, where it is no longer where they say. UserError naming what is wrong.
TextModel open_text_model(const std::string& folder, const std::string& base, bool as_text);

// Adapters are merged on the way.
void load_weights(Generator& generator, const TextModel& model);

}  // namespace lockstep
