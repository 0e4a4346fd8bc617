#include "checkpoint/hf_folder.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/hf_tensors.h"
#include "checkpoint/safetensors_header.h"
#include "spec/model/hf_config.h"
#include "spec/text/json_fields.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = 64 << 20;

[[noreturn]] void refuse_folder(const fs::path& file, const std::string& problem) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", file.string(), problem),
                  "fetch or export the model again");
}

// Which file each tensor is in.
std::map<std::string, std::string, std::less<>> read_index(const fs::path& file) {
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  if (bytes.size() > kMaxIndexBytes)
    refuse_folder(file, fmt::format("has {} bytes, at most {} are read", bytes.size(), kMaxIndexBytes));
  const nlohmann::json document =
      parse_json_object({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
  for (const auto& [key, value] : document.items())
    if (key != "weight_map" && key != "metadata") refuse_folder(file, fmt::format("unknown field {}", quote_text(key)));
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object()) refuse_folder(file, "has no object 'weight_map'");
  std::map<std::string, std::string, std::less<>> files;
  for (const auto& [tensor, value] : map->items()) {
    if (!value.is_string() || !is_plain_name(value.get_ref<const std::string&>()))
      refuse_folder(
          file, fmt::format("tensor {} has no plain name of a file but {}", quote_text(tensor),
                            value.is_string() ? quote_text(value.get_ref<const std::string&>()) : value.type_name()));
    files.emplace(tensor, value.get<std::string>());
  }
  return files;
}

}  // namespace

HfFolder::HfFolder(const fs::path& folder) : folder_(folder), spec_(read_hf_config(folder / "config.json")) {
  const fs::path whole = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::exists(whole, ignored)) {
    files_.push_back(std::make_unique<SafetensorsFile>(whole));
  } else if (fs::exists(index, ignored)) {
    open_shards(index);
  } else {
    throw UserError(ExitCode::bad_input_file,
                    folder.string() + " holds neither model.safetensors nor model.safetensors.index.json",
                    "give a folder as save_pretrained writes it, with safetensors");
  }
}

void HfFolder::open_shards(const fs::path& index) {
  const auto file_of = read_index(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  std::map<std::string, const SafetensorsFile*> opened;
  for (const std::string& name : names) {
    if (std::error_code ignored; !fs::exists(folder_ / name, ignored))
      refuse_folder(index, fmt::format("{} is not there, which the index names", name));
    files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
    opened[name] = files_.back().get();
    for (const SafetensorsEntry& entry : files_.back()->entries()) {
      const auto said = file_of.find(entry.name);
      if (said == file_of.end() || said->second != name)
        refuse_folder(index,
                      fmt::format("tensor {} is in {}, which the index does not say", printable(entry.name), name));
    }
  }
  for (const auto& [tensor, file] : file_of)
    if (!opened.at(file)->contains(tensor))
      refuse_folder(index, fmt::format("tensor {} is not in {}, where the index says it is", printable(tensor), file));
}

std::vector<fs::path> HfFolder::files() const {
  std::vector<fs::path> paths;
  for (const auto& file : files_) paths.push_back(file->path());
  return paths;
}

std::vector<ConstTensor> HfFolder::find(const std::vector<LogicalTensor>& wanted) const {
  std::vector<const SafetensorsFile*> files;
  for (const auto& file : files_) files.push_back(file.get());
  return find_hf_tensors(files, folder_.string(), wanted);
}

}  // namespace lockstep
