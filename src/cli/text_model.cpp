#include "cli/text_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint_model.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/lora_base.h"
#include "checkpoint/manifest.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "spec/model/hf_config.h"
#include "spec/text/text_input.h"
#include "tensor/cpu/stream.h"
#include "train/merged_lora.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

// Where the base of adapters is: as their config says it, also beside them.
std::string found_base(const PeftAdapters& adapters) {
  std::error_code ignored;
  for (const fs::path& place : {fs::path(adapters.base()), adapters.folder() / ".." / adapters.base()})
    if (!adapters.base().empty() && fs::is_directory(place, ignored)) return place.string();
  throw UserError(ExitCode::checkpoint,
                  adapters.base().empty()
                      ? fmt::format("{} holds adapters alone, and does not say of which model",
                                    quote_text(adapters.folder().string()))
                      : fmt::format("{} holds adapters of {}, which is not there",
                                    quote_text(adapters.folder().string()), quote_text(adapters.base())),
                  "name the model by --base FOLDER");
}

void open_adapters(TextModel& source, const fs::path& folder, const std::string& given_base) {
  source.adapters = std::make_unique<PeftAdapters>(folder);
  const std::string base = given_base.empty() ? found_base(*source.adapters) : given_base;
  set_base(source.run, base);
  source.run.lora = source.adapters->lora();
  require_base_folder(source.run);
  source.run.model = source.run.model_hf.empty() ? require_model(base) : read_hf_config(fs::path(base) / kHfConfigName);
  source.spec = source.run.model;
  std::error_code ignored;
  const bool own = fs::exists(folder / kByteMark, ignored) || fs::exists(folder / "tokenizer.json", ignored);
  source.folder = own ? folder : fs::path(base);
  source.bytes = fs::exists(source.folder / kByteMark, ignored);
}

}  // namespace

std::vector<std::int32_t> configured_ends(const fs::path& file) {
  std::vector<std::int32_t> ends;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return ends;
  const std::string where = file.string();
  constexpr std::size_t kMostBytes = 1 << 20;
  const nlohmann::json config = parse_tokenizer_json(read_text_file(file, kMostBytes, ExitCode::bad_input_file), where);
  const TokenizerNode node(config, where, "");
  if (!node.has("eos_token_id")) return ends;
  const nlohmann::json& given = node.at("eos_token_id").value();
  for (const nlohmann::json& id : given.is_array() ? given : nlohmann::json::array({given})) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostTokenIds))
      node.at("eos_token_id").refuse("is no token id, and no list of them", "write ids, as in [2, 7]");
    ends.push_back(id.get<std::int32_t>());
  }
  return ends;
}

TextModel open_text_model(const std::string& folder, const std::string& base, bool as_text) {
  TextModel source;
  const fs::path given = folder;
  std::error_code ignored;
  if (!fs::is_directory(given, ignored))
    throw UserError(ExitCode::checkpoint, fmt::format("there is no folder {}", quote_text(folder)),
                    "name a run folder, one checkpoint, a Hugging Face folder or one of adapters");
  const auto report = [](const fs::path& path, const std::string& reason) {
    fmt::print(stderr, "lockstep: skipping {}: {}\n", path.string(), reason);
  };
  if (holds_adapters_alone(given)) {
    open_adapters(source, given, base);
  } else if (fs::exists(given / "config.json", ignored) && !fs::exists(given / kManifestName, ignored)) {
    source.hf.emplace(given);
    source.spec = source.hf->spec();
    source.bytes = fs::exists(given / kByteMark, ignored);
    source.folder = given;
  } else {
    source.checkpoint = find_checkpoint(given, report);
    if (!source.checkpoint)
      throw UserError(ExitCode::checkpoint, fmt::format("{} holds no whole checkpoint", quote_text(folder)),
                      "name a run folder that has saved one, one checkpoint, a Hugging Face folder or one of adapters");
    source.run = run_of(*source.checkpoint);
    if (!base.empty() && source.run.lora) set_base(source.run, base);
    source.spec = source.run.model;
    source.bytes = speaks_bytes(source.run.data);
    source.folder = source.checkpoint->path();
    source.prefix = kCompanionPrefix;
  }
  if (!base.empty() && !source.run.lora)
    throw UserError(ExitCode::usage, fmt::format("{} is a whole model, not adapters of one", quote_text(folder)),
                    "leave --base out");
  if (source.bytes) {
    source.document_end = kEndOfDocument;
  } else if (as_text && fs::exists(source.file("tokenizer.json"), ignored)) {
    source.text.emplace(Tokenizer::load(source.file("tokenizer.json")));
    source.document_end = find_end_of_document(*source.text, source.file("tokenizer_config.json"));
  }
  if (as_text) source.ends = configured_ends(source.file("generation_config.json"));
  if (source.document_end) source.ends.push_back(*source.document_end);
  return source;
}

void load_weights(Generator& generator, const TextModel& model) {
  if (model.hf) return generator.load(*model.hf);
  if (!model.run.lora) return generator.load(*model.checkpoint);
  Ledger ledger;
  const std::unique_ptr<Memory> memory = make_memory(Device::cpu, ledger);
  cpu::Stream stream(*memory, 1);
  generator.load(model.adapters ? MergedLora(*model.adapters, model.run, stream)
                                : MergedLora(*model.checkpoint, model.run, stream));
}

}  // namespace lockstep
