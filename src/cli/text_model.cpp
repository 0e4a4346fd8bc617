#include "cli/text_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/manifest.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizer/tokenizer_json.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

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

TextModel open_text_model(const std::string& folder, bool as_text) {
  TextModel source;
  const fs::path given = folder;
  std::error_code ignored;
  if (!fs::is_directory(given, ignored))
    throw UserError(ExitCode::checkpoint, fmt::format("there is no folder {}", quote_text(folder)),
                    "name a run folder, one checkpoint or a Hugging Face folder");
  const auto report = [](const fs::path& path, const std::string& reason) {
    fmt::print(stderr, "lockstep: skipping {}: {}\n", path.string(), reason);
  };
  if (fs::exists(given / "config.json", ignored) && !fs::exists(given / kManifestName, ignored)) {
    source.hf.emplace(given);
    source.spec = source.hf->spec();
    source.bytes = fs::exists(given / kByteMark, ignored);
    source.folder = given;
  } else {
    source.checkpoint = find_checkpoint(given, report);
    if (!source.checkpoint)
      throw UserError(ExitCode::checkpoint, fmt::format("{} holds no whole checkpoint", quote_text(folder)),
                      "name a run folder that has saved one, one checkpoint or a Hugging Face folder");
    const RunSpec run = parse_run_toml(source.checkpoint->progress().run_file,
                                       (source.checkpoint->path() / kManifestName).string(), ".");
    source.spec = run.model;
    source.bytes = speaks_bytes(run.data);
    source.folder = source.checkpoint->path();
    source.prefix = kCompanionPrefix;
  }
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

}  // namespace lockstep
