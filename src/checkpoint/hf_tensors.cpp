#include "checkpoint/hf_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/error.h"
#include "checkpoint/safetensors_header.h"

namespace lockstep {
namespace {

constexpr std::string_view kGpt2Prefix = "transformer.", kHead = "lm_head.weight";
constexpr std::array<std::string_view, 3> kBuffers = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
constexpr std::array<std::string_view, 2> kEmbeddings = {"model.embed_tokens.weight", "transformer.wte.weight"};

[[noreturn]] void refuse_weights(const std::string& where, const std::string& problem) {
  throw UserError(ExitCode::bad_input_file, where + ": " + problem, "give the weights that belong to this config.json");
}

struct Found {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

Found find(std::span<const SafetensorsFile* const> files, std::string_view name) {
  for (const SafetensorsFile* file : files)
    if (const SafetensorsEntry* entry = file->find(name)) return {file, entry};
  return {};
}

bool is_buffer(std::string_view name) {
  return std::ranges::any_of(kBuffers, [&](std::string_view end) { return name.ends_with(end); });
}

bool same_bytes(const ConstTensor& a, const ConstTensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

}  // namespace

std::vector<ConstTensor> find_hf_tensors(std::span<const SafetensorsFile* const> files, const std::string& where,
                                         const std::vector<LogicalTensor>& wanted) {
  std::vector<ConstTensor> found;
  std::set<const SafetensorsEntry*> read;
  ConstTensor embedding;
  for (const LogicalTensor& want : wanted) {
    Found at = find(files, want.name);
    if (!at.entry && want.name.starts_with(kGpt2Prefix))
      at = find(files, std::string_view(want.name).substr(kGpt2Prefix.size()));
    if (!at.entry) refuse_weights(where, fmt::format("tensor '{}' is missing", want.name));
    if (at.entry->shape != want.shape)
      refuse_weights(at.file->path().string(),
                     fmt::format("tensor '{}' is [{}], the model needs [{}]", want.name,
                                 fmt::join(at.entry->shape, ", "), fmt::join(want.shape, ", ")));
    found.push_back(at.file->tensor(at.entry->name));
    if (!is_float(found.back().dtype()))
      refuse_weights(at.file->path().string(),
                     fmt::format("tensor '{}' holds {}, not floats", want.name, at.entry->dtype));
    read.insert(at.entry);
    if (std::ranges::find(kEmbeddings, want.name) != kEmbeddings.end()) embedding = found.back();
  }
  for (const SafetensorsFile* file : files) {
    for (const SafetensorsEntry& entry : file->entries()) {
      if (read.contains(&entry) || is_buffer(entry.name)) continue;
      if (entry.name != kHead || embedding.none())
        refuse_weights(file->path().string(),
                       fmt::format("tensor {} is not part of this model", printable(entry.name)));
      if (!same_bytes(file->tensor(kHead), embedding))
        refuse_weights(file->path().string(),
                       fmt::format("tensor '{}' differs from the embedding, but the model ties the two", kHead));
    }
  }
  return found;
}

std::vector<ConstTensor> find_hf_tensors(const SafetensorsFile& file, const std::vector<LogicalTensor>& wanted) {
  const SafetensorsFile* const files[] = {&file};
  return find_hf_tensors(files, file.path().string(), wanted);
}

}  // namespace lockstep
