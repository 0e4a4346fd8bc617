#include "checkpoint/checkpoint_model.h"

#include <algorithm>
#include <sstream>

#include "base/checksum.h"
#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/find_checkpoint.h"
#include "spec/model/model_toml.h"
#include "spec/run/run_toml.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::optional<Checkpoint> newest_with_manifest(const fs::path& folder) {
  std::vector<std::int64_t> steps = steps_in(folder);
  std::ranges::reverse(steps);
  for (const std::int64_t step : steps) {
    try {
      return open_verified_checkpoint(folder / step_folder_name(step));
    } catch (const UserError&) {  // an older one has the same model
    }
  }
  return std::nullopt;
}

HfCompanion read_kept(const Checkpoint& checkpoint, const ManifestFile& file) {
  const fs::path path = checkpoint.path() / file.name;
  const auto refuse = [](const std::string& problem) {
    throw UserError(ExitCode::checkpoint, problem, "the checkpoint is damaged: use another one");
  };
  HfCompanion kept{.name = file.name.substr(kCompanionPrefix.size()), .bytes = {}};
  try {
    kept.bytes = read_companion(path);
  } catch (const UserError& error) {
    refuse(error.what());
  }
  if (checksum(std::as_bytes(std::span(kept.bytes))) != file.checksum)
    refuse(fmt::format("{}: its checksum is not the manifest's", path.string()));
  return kept;
}

}  // namespace

RunSpec run_of(const Checkpoint& checkpoint) {
  return parse_run_toml(checkpoint.progress().run_file, (checkpoint.path() / kManifestName).string(), ".");
}

std::optional<ModelSpec> find_model(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return std::nullopt;
  if (fs::exists(path / kManifestName, ignored)) return run_of(open_verified_checkpoint(path)).model;
  for (const fs::path& place : {path / "checkpoints", path})
    if (const auto found = newest_with_manifest(place)) return run_of(*found).model;
  return std::nullopt;
}

ModelSpec require_model(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw UserError(ExitCode::checkpoint, fmt::format("there is no folder {}", path.string()),
                    "name a run folder that has saved a checkpoint, its checkpoints folder or one step-… folder");
  if (const auto found = find_model(path)) return *found;
  if (fs::exists(path / "config.json", ignored))
    throw UserError(ExitCode::checkpoint, fmt::format("{} is a Hugging Face folder, no run", path.string()),
                    "use model.hf in place of model.from");
  return run_of(require_checkpoint(path)).model;  // which says what is wrong
}

void require_same_model(const Checkpoint& checkpoint, const ModelSpec& model) {
  ModelSpec own = run_of(checkpoint).model;
  own.dropout = model.dropout;
  own.attention_dropout = model.attention_dropout;
  if (own == model) return;
  std::istringstream saved(to_toml(own)), asked(to_toml(model));
  for (std::string is, wanted; std::getline(saved, is) && std::getline(asked, wanted);)
    if (is != wanted)
      throw UserError(ExitCode::usage,
                      fmt::format("{}: its model has {}, the run file says {}", checkpoint.path().string(), is, wanted),
                      "leave the model's fields out beside model.from");
  throw UserError(ExitCode::usage,
                  fmt::format("{}: it has another rope_scaling than the run file says", checkpoint.path().string()),
                  "leave the model's fields out beside model.from");
}

std::vector<HfCompanion> companions_of(const Checkpoint& checkpoint) {
  std::vector<HfCompanion> kept;
  for (const ManifestFile& file : checkpoint.manifest().companions) kept.push_back(read_kept(checkpoint, file));
  if (!kept.empty() || checkpoint.progress().run_file.find("\nhf = ") == std::string::npos) return kept;
  return read_companions(run_of(checkpoint).model_hf);
}

}  // namespace lockstep
