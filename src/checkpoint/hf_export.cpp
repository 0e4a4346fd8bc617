#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/system_failure.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/peft_adapters.h"
#include "checkpoint/peft_folder.h"
#include "checkpoint/safetensors_writer.h"
#include "spec/model/hf_config_writer.h"
#include "spec/model/projections.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".lockstep-export";  // lists the folder's other files, one per line

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      return "float32";
  }
}

void write_text(const fs::path& path, const std::string& text, const Disk& disk) {
  DiskFile file(disk, path);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.finish();
}

// What a folder that is in the way holds.
struct Contents {
  std::set<std::string> files;
  bool folders = false;
};

Contents contents_of(const fs::path& folder) {
  Contents contents;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    contents.files.insert(at->path().filename().string());
    contents.folders |= fs::is_directory(fs::symlink_status(at->path()));
  }
  if (error) throw EnvironmentError(system_failure(folder, "opendir", error.value()));
  return contents;
}

bool is_export(const fs::path& folder, const Contents& contents) {
  if (!contents.files.contains(kMarker)) return false;
  const std::string text = read_text_file(folder / kMarker, 1 << 20, ExitCode::usage);
  std::set<std::string> listed = {kMarker};
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    listed.insert(text.substr(at, end - at));
    at = end + 1;
  }
  return std::ranges::includes(listed, contents.files);
}

// True when there is something to swap with.
bool check_target(const HfExport& what) {
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(what.folder, ignored);
  if (!fs::exists(status)) return false;
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::usage, what.folder.string() + " " + problem, remedy);
  };
  if (!fs::is_directory(status)) refuse("is not a folder", "name another one");
  const Contents contents = contents_of(what.folder);
  if (contents.folders) refuse("has folders inside, so it is not a model's", "name another one");
  if (!contents.files.empty() && !what.replace && !is_export(what.folder, contents))
    refuse("holds files that are not from an export", "name another folder, or use --replace, which removes them");
  return true;
}

// The files of the weights, written and synced. Returns their names.
std::vector<std::string> write_weights(const fs::path& into, const HfExport& what, std::span<const HfTensor> tensors,
                                       const Disk& disk) {
  std::vector<std::vector<NamedTensor>> shards(1);
  std::int64_t filled = 0, total = 0;
  for (const HfTensor& t : tensors) {
    LOCKSTEP_CHECK(is_float(t.values.dtype()) && t.values.elements() == t.tensor.elements(), "tensor '{}' of {} as {}",
                   t.tensor.name, t.values.shape(), name_of(t.values.dtype()));
    const std::int64_t bytes = t.tensor.elements() * size_of(what.dtype);
    if (filled > 0 && filled + bytes > what.shard_limit) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    total += bytes;
    shards.back().push_back({t.tensor.name, t.values.reshape(Shape(std::span(t.tensor.shape))), what.dtype});
  }
  std::vector<std::string> names;
  nlohmann::json map = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shards.size() == 1 ? "model.safetensors"
                                       : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    for (const NamedTensor& t : shards[i]) map[t.name] = names.back();
    DiskFile file(disk, into / names.back());
    write_safetensors(file, shards[i], {{"format", "pt"}});
    file.finish();
  }
  if (shards.size() == 1) return names;
  names.push_back("model.safetensors.index.json");
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  write_text(into / names.back(), index.dump(2) + "\n", disk);
  return names;
}

}  // namespace

namespace {

// A folder of files that `write` makes in it, and names, and of companions.
void export_folder(const HfExport& what, const std::function<std::vector<std::string>(const fs::path&)>& write,
                   const Disk& disk) {
  LOCKSTEP_CHECK(is_float(what.dtype), "an export as {}", name_of(what.dtype));
  HfExport target = what;  // "a/b/" and "." name folders too; beside them is where their last name is
  target.folder = fs::absolute(what.folder).lexically_normal();
  if (!target.folder.has_filename()) target.folder = target.folder.parent_path();
  const bool there = check_target(target);
  const fs::path parent = target.folder.parent_path();
  const fs::path partial = parent / (".partial-" + target.folder.filename().string());
  disk.make_folders(parent);
  disk.remove_tree(partial);  // of an export that was killed
  Provisional provisional(disk, partial);
  disk.make_folder(partial);
  std::vector<std::string> names = write(partial);
  for (const HfCompanion& one : what.companions) {
    if (one.name == kHfConfigName) continue;
    write_text(partial / one.name, one.bytes, disk);
    names.push_back(one.name);
  }
  if (what.bytes) {
    write_text(partial / kByteMark, "{\"tokenizer\": \"bytes\", \"end_of_document\": 256}\n", disk);
    names.push_back(kByteMark);
  }
  std::string list;
  for (const std::string& name : names) list += name + "\n";
  write_text(partial / kMarker, list, disk);
  disk.sync_folder(partial);
  if (!there || !disk.swap(partial, target.folder)) {
    if (there) disk.remove_tree(target.folder);
    disk.rename(partial, target.folder);
  }
  disk.sync_folder(parent);
  disk.remove_tree(partial);  // by now what was there before
  provisional.keep();
}

}  // namespace

void export_hf(const HfExport& what, std::span<const HfTensor> tensors, const Disk& disk) {
  const auto write = [&](const fs::path& into) {
    std::vector<std::string> names = write_weights(into, what, tensors, disk);
    write_text(into / kHfConfigName, hf_config_text(what.spec, torch_name(what.dtype), kept_config(what.companions)),
               disk);
    names.emplace_back(kHfConfigName);
    return names;
  };
  export_folder(what, write, disk);
}

std::string peft_config_text(const PeftExport& what) {
  nlohmann::json modules = nlohmann::json::array();
  for (const Projection& p : projections_of(what.spec))
    if (what.lora.adapts(p.name)) modules.push_back(p.name);
  const nlohmann::json config = {{"peft_type", "LORA"},
                                 {"task_type", "CAUSAL_LM"},
                                 {"base_model_name_or_path", what.base},
                                 {"r", what.lora.rank},
                                 {"lora_alpha", what.lora.alpha},
                                 {"lora_dropout", 0.0},
                                 {"target_modules", std::move(modules)},
                                 {"fan_in_fan_out", what.spec.in_out_weights},
                                 {"bias", "none"},
                                 {"use_rslora", false},
                                 {"use_dora", false},
                                 {"modules_to_save", nullptr},
                                 {"inference_mode", true}};
  return config.dump(2) + "\n";
}

void export_peft(const PeftExport& what, std::span<const HfTensor> tensors, const Disk& disk) {
  const auto write = [&](const fs::path& into) {
    std::vector<NamedTensor> adapters;
    for (const HfTensor& t : tensors)
      adapters.push_back({t.tensor.name, t.values.reshape(Shape(std::span(t.tensor.shape))), what.dtype});
    const std::vector<std::string> names{kAdapterWeightsName, kAdapterConfigName};
    DiskFile file(disk, into / names[0]);
    SafetensorsMetadata metadata{{"format", "pt"}};
    if (!what.lora.base.empty()) metadata[kBaseFingerprint] = what.lora.base;
    write_safetensors(file, adapters, metadata);
    file.finish();
    write_text(into / names[1], peft_config_text(what), disk);
    return names;
  };
  export_folder({.folder = what.folder,
                 .spec = what.spec,
                 .dtype = what.dtype,
                 .replace = what.replace,
                 .companions = what.companions,
                 .bytes = what.bytes},
                write, disk);
}

}  // namespace lockstep
